"""What a claim brought, as JSON. What a run of messages shares is written once; payloads are copied as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ackwise.broker.handing import Run, runs
from ackwise.core import ids
from ackwise.core.answers import Claimed, Handed, Settled
from ackwise.core.messages import Extras
from ackwise.core.native import claiming, instants
from ackwise.core.native.claiming import ClaimBody, Columns
from ackwise.core.native.settling import verdicts
from ackwise.dialects.cells import Cells, cells, created, listed, quoted
from ackwise.dialects.http import encode

_PLAIN = Extras()


def one(body: ClaimBody, settled: Sequence[Settled], handed: Handed) -> bytes:
    """The answer to a claim, in the form it asks for."""
    if body.columns:
        columns = _columns(handed)
        columns.verdicts = list(settled)
        return encode(columns)
    head = head_of(body, settled, handed.claimed)
    if body.grants_only:
        return encode({**head, "grants": handed.claimed.grants})
    return b'%b,"messages":[%b]}' % (encode(head)[:-1], b",".join(_rows(handed)))


def ahead(body: ClaimBody, settled: Sequence[Settled], batches: Sequence[Handed]) -> bytes:
    """The answer to a claim of several batches."""
    if body.columns:
        return encode(claiming.Ahead(list(settled), [_columns(batch) for batch in batches]))
    plain = msgspec.structs.replace(body, settle=None)
    claims = b",".join(one(plain, (), batch) for batch in batches)
    told = encode(verdicts(body.settle or (), settled, detail=body.detail))
    return b'{"verdicts":%b,"claims":[%b]}' % (told, claims)


def head_of(body: ClaimBody, settled: Sequence[Settled], claimed: Claimed) -> dict[str, Any]:
    """What there is to say about a claim besides its messages."""
    head: dict[str, Any] = {
        "lease_id": claimed.lease_id or None,
        "group": claimed.group,
        "deadline": instants.text(claimed.deadline) if claimed.lease_no else None,
        "empty": claimed.empty,
        "until": instants.text_or_none(claimed.until),
    }
    if body.settle is not None:
        head["verdicts"] = verdicts(body.settle, settled, detail=body.detail)
    return head


def _columns(handed: Handed) -> Columns[msgspec.Raw]:
    claimed = handed.claimed
    answer: Columns[msgspec.Raw] = Columns(
        claimed.group, claimed.lease_id, claimed.deadline, claimed.empty, claimed.until, claimed.grants
    )
    texts: list[bytes] = []
    txids: list[str] = []
    answer.runs, answer.extras = [], {}
    for run in runs(handed):
        found = cells(run)
        names = ids.uuid_text(found.numbers[0]) if found.counted else found.message_ids
        answer.runs.append(claiming.Run(run.segment.lane, run.lo, run.hi, run.segment.created_at, names))
        if found.extras is not None:
            answer.extras |= {at: extra for at, extra in enumerate(found.extras, len(texts)) if extra != _PLAIN}
        texts += found.texts
        txids += found.txids
    answer.transaction_ids = txids if any(txids) else []
    answer.payloads = msgspec.Raw(b"[%b]" % b",".join(texts)) if texts else None
    return answer


def _rows(handed: Handed) -> list[bytes]:
    rows: list[bytes] = []
    for run in runs(handed):
        found = cells(run)
        message_ids = found.message_ids
        columns = zip(
            listed(delivery_ids(handed.claimed, run)),
            listed(message_ids),
            listed(quoted(found.transaction_ids(message_ids))),
            range(run.lo, run.hi),
            found.texts,
            _told(found),
            _moments(found, run),
            strict=True,
        )
        template = _template(run)
        rows += [template % row for row in columns]
    return rows


def delivery_ids(claimed: Claimed, run: Run) -> list[str]:
    """Empty with auto-ack: there is nothing to settle."""
    if not claimed.lease_no:
        return [""] * (run.hi - run.lo)
    return ids.delivery_ids(claimed.lease_no, claimed.tag, run.grant.lane, run.lo, run.hi)


def _moments(found: Cells, run: Run) -> list[bytes]:
    at = created(found, run)
    return [instants.text(at[0]).encode()] * len(at) if found.counted else listed(map(instants.text, at))


def _template(run: Run) -> bytes:
    """A row of the run, with holes for what differs."""
    grant = run.grant
    shared = encode(
        {
            "queue": grant.queue,
            "partition": grant.partition,
            "partition_id": grant.partition_id,
            "priority": grant.priority,
            "attempt": grant.attempt,
            "failures": grant.failures,
        }
    )[1:-1].replace(b"%", b"%%")
    return (
        b'{"delivery_id":"%%b","message_id":"%%b","transaction_id":%%b,%b,'
        b'"seq":%%d,"payload":%%b,%%b,"created_at":"%%b"}' % shared
    )


_NOTHING_MORE = b'"headers":{},"content_type":"application/json"'


def _told(found: Cells) -> list[bytes]:
    if found.extras is None:
        return [_NOTHING_MORE] * len(found.texts)
    return [encode({"headers": extra.headers, "content_type": extra.content_type})[1:-1] for extra in found.extras]
