"""Answers of `/v1/claim` as JSON: rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ackwise.broker.deliveries import SegmentSlice, segment_slices
from ackwise.core import ids
from ackwise.core.answers import Claimed, Handed, Settled
from ackwise.core.messages import Extras
from ackwise.protocols.http_response import encode
from ackwise.protocols.json_columns import TextColumns, encoded_texts, message_columns, text_columns
from ackwise.wire import claim, timestamps
from ackwise.wire.claim import ClaimBody, ClaimColumns
from ackwise.wire.settle import verdicts

_PLAIN = Extras()


def write_claim(body: ClaimBody, settled: Sequence[Settled], handed: Handed) -> bytes:
    """The answer to a claim: columns, grants or rows, as the request says."""
    if body.columns:
        columns = _columns(handed)
        columns.verdicts = list(settled)
        return encode(columns)
    head = head_of(body, settled, handed.claimed)
    if body.grants_only:
        return encode({**head, "grants": handed.claimed.grants})
    return b'%b,"messages":[%b]}' % (encode(head)[:-1], b",".join(_rows(handed)))


def write_batches(body: ClaimBody, settled: Sequence[Settled], batches: Sequence[Handed]) -> bytes:
    """The answer to a claim of several batches."""
    if body.columns:
        return encode(claim.Ahead(list(settled), [_columns(batch) for batch in batches]))
    plain = msgspec.structs.replace(body, settle=None)
    claims = b",".join(write_claim(plain, (), batch) for batch in batches)
    verdicts_json = encode(verdicts(body.settle or (), settled, detail=body.detail))
    return b'{"verdicts":%b,"claims":[%b]}' % (verdicts_json, claims)


def head_of(body: ClaimBody, settled: Sequence[Settled], claimed: Claimed) -> dict[str, Any]:
    """Fields of a claim's answer except its messages."""
    head: dict[str, Any] = {
        "lease_id": claimed.lease_id or None,
        "group": claimed.group,
        "deadline": timestamps.text(claimed.deadline) if claimed.lease_no else None,
        "empty": claimed.empty,
        "until": timestamps.text_or_none(claimed.until),
    }
    if body.settle is not None:
        head["verdicts"] = verdicts(body.settle, settled, detail=body.detail)
    return head


def _columns(handed: Handed) -> ClaimColumns[msgspec.Raw]:
    claimed = handed.claimed
    answer: ClaimColumns[msgspec.Raw] = ClaimColumns(
        claimed.group, claimed.lease_id, claimed.deadline, claimed.empty, claimed.until, claimed.grants
    )
    texts: list[bytes] = []
    txids: list[str] = []
    answer.runs, answer.extras = [], {}
    for run in segment_slices(handed):
        columns = message_columns(run)
        message_ids = ids.uuid_text(columns.numbers[0]) if columns.counted else columns.message_ids
        answer.runs.append(claim.MessageRange(run.segment.lane, run.lo, run.hi, run.segment.created_at, message_ids))
        if columns.extras is not None:
            answer.extras |= {at: extra for at, extra in enumerate(columns.extras, len(texts)) if extra != _PLAIN}
        texts += columns.texts
        txids += columns.txids
    answer.transaction_ids = txids if any(txids) else []
    answer.payloads = msgspec.Raw(b"[%b]" % b",".join(texts)) if texts else None
    return answer


def _rows(handed: Handed) -> list[bytes]:
    rows: list[bytes] = []
    for run in segment_slices(handed):
        columns = text_columns(run)
        values = zip(
            encoded_texts(delivery_ids(handed.claimed, run)),
            columns.message_ids,
            columns.quoted_txids,
            range(run.lo, run.hi),
            columns.texts,
            _headers_fields(columns),
            columns.created,
            strict=True,
        )
        template = _template(run)
        rows += [template % row for row in values]
    return rows


def delivery_ids(claimed: Claimed, run: SegmentSlice) -> list[str]:
    """Delivery ids of a run. With auto-ack they are empty, because these messages need no settlement."""
    if not claimed.lease_no:
        return [""] * (run.hi - run.lo)
    return ids.delivery_ids(claimed.lease_no, claimed.tag, run.grant.lane, run.lo, run.hi)


def _template(run: SegmentSlice) -> bytes:
    """Format string of a row, with placeholders for fields that differ within the run."""
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


_PLAIN_FIELDS = b'"headers":{},"content_type":"application/json"'


def _headers_fields(columns: TextColumns) -> list[bytes]:
    """The fields `headers` and `content_type` of each message."""
    if columns.extras is None:
        return [_PLAIN_FIELDS] * len(columns.texts)
    return [encode({"headers": extra.headers, "content_type": extra.content_type})[1:-1] for extra in columns.extras]
