"""`ackwise message`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ackwise.cli import message_lines as lines
from ackwise.cli.arguments import DEFAULT_URL, URL, AsJSON, Partition, QueueName, duration, opened
from ackwise.cli.message_lines import MessageLine
from ackwise.cli.output import Progress, counted, group_from, group_shown, plain_text, show_fields, show_json, show_rows
from ackwise.core.errors import BadInput, MessageNotFound
from ackwise.core.messages import NewMessage
from ackwise.spark.reports.columns import Column
from ackwise.spark.reports.columns import moment as moment_shown

if TYPE_CHECKING:
    from ackwise.client import Batch, Connection, Delivery
    from ackwise.client.results import BrowsedMessage

app = typer.Typer(no_args_is_help=True, help="Push, read and take messages.")

CLAIMED = 100
"""Messages of one claim of `pop`."""
PAGE = 1000
MOST_LANES = 1000
"""Lanes that `tail` follows, and partitions that `show` searches."""
MOST_SEARCHED = 100_000
"""Messages that `show` reads to find a message id."""
POLL_SECONDS = 0.5
LONGEST_PREVIEW = 300
_COLUMNS = (
    Column("id", "id", "id"),
    Column("partition", "partition"),
    Column("priority", "priority", "number"),
    Column("seq", "seq", "number"),
    Column("state", "state"),
    Column("created_at", "created", "moment"),
    Column("preview", "payload"),
)
_OPTIONAL = ("created_at", "priority", "seq", "state", "partition", "preview")
Group = Annotated[
    str | None,
    typer.Option("--group", help="Show the state for this group. (default) has no name.", callback=group_from),
]


@app.command()
def push(
    queue: QueueName,
    payload: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="Payload. Without it: one JSON payload per line of stdin.")
    ] = None,
    partition: Annotated[str | None, typer.Option("--partition", help="Partition of the messages.")] = None,
    priority: Annotated[int, typer.Option("--priority", help="Priority of the messages.")] = 0,
    transaction_id: Annotated[
        str | None, typer.Option("--transaction-id", help="Id of one message: a second push with it stores nothing.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Header of the messages; repeatable.")
    ] = None,
    delay: Annotated[str | None, typer.Option("--delay", help="Time until the messages are visible: 90s, 1h.")] = None,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Push a message, or a message for each line of stdin. Creates the queue if it does not exist."""
    if payload is None and sys.stdin.isatty():
        raise BadInput("pass a JSON payload, or pipe one JSON payload per line")
    if transaction_id is not None and payload is None:
        raise BadInput("--transaction-id is for one message; pass its payload as an argument")
    model = NewMessage(
        b"",
        **({} if partition is None else {"partition": partition}),
        priority=priority,
        headers=_headers(header or []),
        transaction_id=transaction_id,
        delay=0 if delay is None else round(duration(delay, "--delay") / timedelta(microseconds=1)),
    )
    batches = lines.read_batches() if payload is None else iter([[(1, _encoded(payload))]])
    filled = (
        (queue, [msgspec.structs.replace(model, payload=lines.plain_payload(text, number)) for number, text in batch])
        for batch in batches
    )
    with opened(url, create=True) as connection:
        _push_all(connection, filled, "pushed", as_json)


def _encoded(payload: str) -> bytes:
    try:
        text = payload.encode()
    except UnicodeEncodeError:
        raise BadInput("the payload must be valid Unicode") from None
    try:
        return lines.plain_payload(text, 1)
    except BadInput:
        raise BadInput(f"the payload {payload!r:.60} is not JSON; a text needs quotes: '\"text\"'") from None


def _headers(texts: list[str]) -> dict[str, str] | None:
    headers = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"--header {text}: write it as name=value")
        headers[name] = value
    return headers or None


def _push_all(
    connection: Connection, batches: Iterator[tuple[str, list[NewMessage]]], done: str, as_json: bool
) -> None:
    """Push batch by batch. An error has the number of messages that were already pushed."""
    from ackwise.core.commands import Push

    pushed = duplicates = 0
    progress, last = Progress(done), None
    try:
        for queue, messages in batches:
            command = Push(queue=queue, messages=messages, create=connection.new_queue_policy)
            receipts = list(connection.transport.send(command))
            repeated = sum(receipt.status == "duplicate" for receipt in receipts)
            pushed, duplicates, last = pushed + len(receipts) - repeated, duplicates + repeated, receipts[-1]
            progress(pushed)
    except BadInput as problem:
        if stored := pushed + duplicates:
            verb = "is" if stored == 1 else "are"
            raise BadInput(f"{problem} ({counted(stored, 'message')} before it {verb} stored)") from None
        raise
    finally:
        progress.end()
    if as_json:
        show_json({"pushed": pushed, "duplicates": duplicates, "last": last})
    elif last is None:
        print("stdin has no lines; nothing was pushed")
    else:
        single = f" {last.message_id}" if pushed + duplicates == 1 else ""
        print(
            f"{done} {counted(pushed, 'message')}{single}"
            + (f", {counted(duplicates, 'duplicate')}" if duplicates else "")
        )


@app.command(name="import")
def import_messages(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Push all lines to this queue instead of their own.")
    ] = None,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Push the lines of `message export` from stdin. A second import of the same lines stores nothing."""
    if sys.stdin.isatty():
        raise BadInput("pipe the lines of: ackwise message export QUEUE")
    with opened(url, create=True) as connection:
        _push_all(connection, _imported(queue), "imported", as_json)


def _imported(queue: str | None) -> Iterator[tuple[str, list[NewMessage]]]:
    """Messages of stdin, with the queue of each batch."""
    for batch in lines.read_batches():
        messages: list[NewMessage] = []
        target = ""
        for number, text in batch:
            line = lines.parsed(text, number)
            own = queue or line.queue
            if own is None:
                raise BadInput(f"line {number} names no queue; pass the queue as an argument")
            if messages and own != target:
                yield target, messages
                messages = []
            target = own
            messages.append(lines.new_message(line, number))
        if messages:
            yield target, messages


@app.command()
def peek(
    queue: QueueName,
    group: Group = None,
    partition: Partition = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of messages.")] = 10,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Show the first messages of a queue. The messages stay in the queue."""
    with opened(url) as connection:
        messages = connection.browse(queue, partition=partition, group=group, limit=limit)
    if as_json:
        show_json([_line(queue, message) for message in messages])
        return
    columns = [column for column in _COLUMNS if group is not None or column.key != "state"]
    nothing = f"queue {queue} has no messages; push one with: ackwise message push {queue} JSON"
    show_rows([_row(message) for message in messages], columns, False, nothing, optional=_OPTIONAL)


def _row(message: BrowsedMessage) -> dict[str, Any]:
    return {**{name: getattr(message, name) for name in message.__struct_fields__}, "preview": _preview(message)}


def _preview(message: BrowsedMessage) -> str:
    raw, _ = lines.payload_json(message.payload, message.content_type)
    text = bytes(raw).decode()
    return text if len(text) <= LONGEST_PREVIEW else f"{text[:LONGEST_PREVIEW]}…"


def _line(queue: str, message: BrowsedMessage) -> MessageLine:
    raw, kind = lines.payload_json(message.payload, message.content_type)
    return MessageLine(
        payload=raw,
        queue=queue,
        partition=message.partition,
        priority=message.priority,
        transaction_id=message.transaction_id,
        content_type=kind,
        headers=message.headers,
        id=message.id,
        partition_id=message.partition_id,
        seq=message.seq,
        created_at=message.created_at,
        state=message.state,
    )


@app.command()
def export(
    queue: QueueName,
    partition: Partition = None,
    group: Group = None,
    url: URL = DEFAULT_URL,
) -> None:
    """Write all stored messages of a queue to stdout, one JSON object per line. The messages stay in the queue."""
    out, progress, count = lines.stdout(), Progress("exported"), 0
    with opened(url) as connection:
        connection.queue(queue)
        for message in _browsed(connection, queue, partition, group):
            out.write(lines.written(_line(queue, message)))
            count += 1
            progress(count)
    out.flush()
    progress.end()
    if not count:
        print(f"queue {queue} has no messages", file=sys.stderr)


def _browsed(
    connection: Connection, queue: str, partition: str | None, group: str | None = None
) -> Iterator[BrowsedMessage]:
    """All stored messages, page by page."""
    last: BrowsedMessage | None = None
    while page := connection.browse(queue, partition=partition, group=group, after=last, limit=PAGE):
        yield from page
        last = page[-1]


@app.command()
def pop(
    queue: QueueName,
    group: Annotated[
        str | None, typer.Option("--group", help="Take messages for this group.", callback=group_from)
    ] = None,
    partition: Partition = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of messages.")] = 1,
    everything: Annotated[bool, typer.Option("--all", help="Take messages until none is left.")] = False,
    wait: Annotated[str, typer.Option("--wait", help="Time to wait for the first message: 30s.")] = "0s",
    no_ack: Annotated[bool, typer.Option("--no-ack", help="Release the messages instead of acking them.")] = False,
    url: URL = DEFAULT_URL,
) -> None:
    """Take messages, print each as a line of JSON, and ack the printed messages. An error releases the batch."""
    if no_ack and (everything or count > PAGE):
        raise BadInput(f"--no-ack takes at most {PAGE} messages, because it holds them until the end")
    wanted = sys.maxsize if everything else count
    waits = duration(wait, "--wait").total_seconds()
    taken = 0
    with opened(url) as connection:
        connection.queue(queue)
        if not waits:
            _check_partition(connection, queue, partition)
        while taken < wanted:
            size = min(wanted - taken, PAGE if no_ack else CLAIMED)
            batch = connection.claim(
                queue, group=group, max=size, wait=waits, partitions=None if partition is None else [partition]
            )
            if not batch:
                _check_partition(connection, queue, partition)
                _say_empty(queue, batch, taken)
                return
            _print_batch(queue, batch, no_ack)
            taken, waits = taken + len(batch), 0.0
            if no_ack:
                return


def _check_partition(connection: Connection, queue: str, partition: str | None) -> None:
    """Raise if the queue has no such partition. A push may create the partition while `pop` waits."""
    if partition is not None:
        connection.browse(queue, partition=partition, limit=1)


def _print_batch(queue: str, batch: Batch, no_ack: bool) -> None:
    """Print the messages of a batch, flush, then settle the batch. An error releases the whole batch."""
    out = lines.stdout()
    with batch:
        try:
            for delivery in batch:
                out.write(lines.written(_delivered(queue, delivery, batch.group)))
            out.flush()
        except BaseException:
            batch.release()
            raise
        if no_ack:
            batch.release()


def _delivered(queue: str, delivery: Delivery, group: str) -> MessageLine:
    raw, kind = lines.payload_json(delivery.payload, delivery.content_type)
    return MessageLine(
        payload=raw,
        queue=queue,
        partition=delivery.partition,
        priority=delivery.priority,
        transaction_id=delivery.transaction_id,
        content_type=kind,
        headers=dict(delivery.headers),
        id=delivery.message_id,
        seq=delivery.seq,
        created_at=delivery.created_at,
        group=group,
        delivery_id=delivery.id,
        attempt=delivery.attempt,
        failures=delivery.failures,
    )


def _say_empty(queue: str, batch: Batch, taken: int) -> None:
    if taken:
        return
    reason = batch.empty.value if batch.empty is not None else "empty"
    until = f" until {moment_shown(batch.until)}" if batch.until is not None else ""
    print(f"queue {queue} has no message to take: {reason}{until}", file=sys.stderr)


@app.command()
def tail(
    queue: QueueName,
    partition: Partition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, max=10_000, help="Number of last messages.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new messages until Ctrl-C.")] = False,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Print the last messages of a queue, and with --follow also new messages. The messages stay in the queue.

    --json prints one line for each message.
    """
    with opened(url) as connection:
        connection.queue(queue)
        _check_partition(connection, queue, partition)
        places: dict[int, int] = {}
        shown = _print_tail(queue, _last(connection, queue, partition, limit, places), as_json)
        if not shown and not follow:
            print("[]" if as_json else f"queue {queue} has no messages")
        try:
            while follow:
                wait_for_more()
                _print_tail(queue, _new(connection, queue, partition, places), as_json)
        except KeyboardInterrupt:
            return


def wait_for_more() -> None:
    time.sleep(POLL_SECONDS)


def _lanes(connection: Connection, queue: str, partition: str | None) -> list[Any]:
    from ackwise.core.queries import ListLanes

    lanes = [
        lane
        for lane in connection.transport.ask(ListLanes(queue=queue))
        if partition is None or lane.partition == partition
    ]
    if len(lanes) > MOST_LANES:
        raise BadInput(f"queue {queue} has {len(lanes)} lanes; name one of its partitions with --partition")
    return lanes


def _last(
    connection: Connection, queue: str, partition: str | None, limit: int, places: dict[int, int]
) -> list[BrowsedMessage]:
    """The newest messages of all lanes, oldest first. Stores the end of each lane in `places`."""
    messages: list[BrowsedMessage] = []
    for lane in _lanes(connection, queue, partition):
        places[lane.lane] = lane.head
        messages += _read(connection, queue, lane, max(lane.start, lane.head - limit))
    messages.sort(key=lambda message: (message.created_at, message.lane, message.seq))
    return messages[max(0, len(messages) - limit) :]


def _new(connection: Connection, queue: str, partition: str | None, places: dict[int, int]) -> list[BrowsedMessage]:
    """Messages that came after the ends of the lanes in `places`. Updates `places`."""
    messages: list[BrowsedMessage] = []
    for lane in _lanes(connection, queue, partition):
        messages += _read(connection, queue, lane, max(lane.start, places.get(lane.lane, 0)))
        places[lane.lane] = lane.head
    return sorted(messages, key=lambda message: (message.created_at, message.lane, message.seq))


def _read(connection: Connection, queue: str, lane: Any, lo: int) -> list[BrowsedMessage]:
    """Messages [lo, head) of a lane."""
    from ackwise.client.results import browsed_message
    from ackwise.core.queries import Browse

    messages: list[BrowsedMessage] = []
    while lo < lane.head:
        query = Browse(queue=queue, partition=lane.partition, after=(lane.lane, lo - 1), limit=lane.head - lo)
        page = [row for row in connection.transport.ask(query) if row.message.lane == lane.lane]
        if not page:
            break
        messages += map(browsed_message, page)
        lo = messages[-1].seq + 1
    return messages


def _print_tail(queue: str, messages: list[BrowsedMessage], as_json: bool) -> int:
    out = lines.stdout()
    for message in messages:
        if as_json:
            out.write(lines.written(_line(queue, message)))
        else:
            place = plain_text(message.partition)
            text = f"{moment_shown(message.created_at)} {place} {message.id} {plain_text(_preview(message))}\n"
            out.write(text.encode())
    out.flush()
    return len(messages)


@app.command()
def show(
    queue: QueueName,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id or transaction id of the message.")],
    partition: Partition = None,
    url: URL = DEFAULT_URL,
    as_json: AsJSON = False,
) -> None:
    """Show a message with its payload and its state for each group."""
    with opened(url) as connection:
        stored = _stored(connection, queue, id, partition)
    from ackwise.wire.timestamps import moment

    message = stored.message
    raw, kind = lines.payload_json(message.payload, message.content_type)
    fields = {
        "id": message.id,
        "transaction_id": message.transaction_id,
        "queue": queue,
        "partition": stored.partition,
        "priority": stored.priority,
        "seq": None if stored.due_at is not None else message.seq,
        "created_at": moment(message.created_at),
        "due_at": None if stored.due_at is None else moment(stored.due_at),
        "content_type": kind,
        "headers": message.headers,
    }
    groups = [
        {
            **msgspec.structs.asdict(view),
            "deadline": None if view.deadline is None else moment(view.deadline),
        }
        for view in stored.groups
    ]
    if as_json:
        show_json({**fields, "payload": raw, "groups": groups, "dead_letters": [letter.id for letter in stored.dead]})
        return
    fields["headers"] = ", ".join(f"{name}={value}" for name, value in message.headers.items()) or None
    show_fields([*fields.items(), ("payload", bytes(raw).decode())])
    show_fields((f"group {group_shown(view['group'])}", _state(view)) for view in groups)
    show_fields(("dead letter", letter.id) for letter in stored.dead)


def _state(view: dict[str, Any]) -> str:
    parts = [view["state"]]
    if view["deadline"] is not None:
        parts.append(f"until {moment_shown(view['deadline'])}")
    if view["deliveries"]:
        parts.append(counted(view["deliveries"], "delivery", "deliveries"))
        parts.append(counted(view["failures"], "failure"))
    if view["error"]:
        parts.append(f"last error: {view['error']}")
    return ", ".join(parts)


def _stored(connection: Connection, queue: str, id: str, partition: str | None) -> Any:
    """The message with this id or transaction id. Looks for the transaction id first."""
    from ackwise.core.queries import FindMessage, ListPartitions

    rows = connection.transport.ask(ListPartitions(queue=queue, limit=MOST_LANES))
    places = [row for row in rows if partition is None or row.partition == partition]
    for place in places:
        try:
            return connection.transport.ask(FindMessage(partition_id=place.partition_id, transaction_id=id))
        except MessageNotFound:
            continue
    for number, message in enumerate(_browsed(connection, queue, partition)):
        if message.id == id:
            query = FindMessage(partition_id=message.partition_id, transaction_id=message.transaction_id)
            return connection.transport.ask(query)
        if number >= MOST_SEARCHED:
            raise MessageNotFound(
                f"no message {id!r} among the first {MOST_SEARCHED} of queue {queue!r}; pass its transaction id"
            )
    raise MessageNotFound(f"queue {queue!r} has no message {id!r}")
