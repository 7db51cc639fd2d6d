"""Dead letters: found, put back, copied, forgotten."""

from __future__ import annotations

import msgspec
import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.answers import Counted, PurgePlace
from ackwise.core.errors import AckwiseError, BadInput, PayloadTooLarge
from ackwise.core.messages import NewMessage
from ackwise.engine import dead_letters
from tests.engine.store_harness import StoreHarness, counts


def kill(harness: StoreHarness, *bodies: str, group: str = "g", error: str = "bad", **where: str) -> None:
    harness.push(*bodies, **where)  # type: ignore[arg-type]
    harness.reject(*harness.claim(100, group=group).deliveries, error=error)


def test_letter_has_all_that_is_known(harness: StoreHarness) -> None:
    message = NewMessage(b"\xff", transaction_id="t", headers={"h": "1"}, content_type="x/y", partition="p")
    (receipt,) = harness.send([message])
    born = harness.clock.now()
    harness.advance(5)
    got = harness.take(group="g")
    harness.reject(got, error="why", error_type="KeyError")
    (letter,) = harness.dead()
    assert (letter.queue, letter.partition, letter.partition_id, letter.group) == ("q", "p", receipt.partition_id, "g")
    assert (letter.seq, letter.message_id, letter.transaction_id) == (0, receipt.message_id, "t")
    assert (letter.payload, letter.headers, letter.content_type) == (b"\xff", {"h": "1"}, "x/y")
    assert (letter.created_at, letter.dead_at) == (born, harness.clock.now())
    assert (letter.error, letter.error_type, letter.deliveries) == ("why", "KeyError", 1)


def test_dead_letters_are_filtered_by_each_field(harness: StoreHarness) -> None:
    kill(harness, "a")
    first_at = harness.clock.now()
    harness.advance(60)
    kill(harness, "b", partition="p", group="h")
    harness.push("c", queue="r")
    harness.reject(harness.take(queue="r"))
    payloads = {
        "queue": [d.payload for d in harness.dead(queue="q")],
        "group": [d.payload for d in harness.dead(group="g")],
        "partition": [d.payload for d in harness.dead(partition="p", group="h")],
        "until": [d.payload for d in harness.dead(before_at=first_at)],
        "since": sorted(d.payload for d in harness.dead(after_at=first_at + 1)),
        "reason": sorted(d.payload for d in harness.dead(reason="rejected", after_at=first_at + 1)),
        "no such reason": harness.dead(reason="max_wait"),
    }
    assert payloads == {
        "queue": [b"b", b"a", b"a"],
        "group": [b"a"],
        "partition": [b"b"],
        "until": [b"a"],
        "since": [b"a", b"b", b"c"],
        "reason": [b"a", b"b", b"c"],
        "no such reason": [],
    }


def test_filter_by_ids(harness: StoreHarness) -> None:
    kill(harness, "a", "b", "c")
    wanted = [d.id for d in harness.dead() if d.payload != b"b"]
    page = harness.store.ask(q.ListDead(ids=wanted))
    assert (sorted(d.payload for d in page.letters), page.total) == ([b"a", b"c"], 2)
    assert harness.store.ask(q.ListDead(ids=[])).total == 0


def test_pages_and_total(harness: StoreHarness) -> None:
    for body in "abcde":
        kill(harness, body)
        harness.advance(1)
    seen = []
    for offset in (0, 2, 4):
        page = harness.store.ask(q.ListDead(queue="q", limit=2, offset=offset))
        assert page.total == 5
        seen += [d.payload.decode() for d in page.letters]
    assert seen == ["e", "d", "c", "b", "a"]


def test_redrive_goes_to_the_old_place_before_what_is_left(harness: StoreHarness) -> None:
    harness.number(4)
    hand = harness.claim(2, group="g")
    harness.reject(hand.deliveries[0])
    harness.ack(hand.deliveries[1])
    assert harness.redrive(*harness.dead()).count == 1
    assert harness.dead() == []
    assert counts(harness.group("g")) == {"acked": 1, "held": 1, "unread": 2}
    again = harness.claim(group="g", order="strict").deliveries
    assert [(d.body, d.seq, d.failures, d.attempt) for d in again] == [("0", 0, 0, 1), ("2", 2, 0, 1), ("3", 3, 0, 1)]
    harness.reject(again[0])
    assert [line["event"] for line in harness.dead()[0].history] == ["reject", "redrive", "reject"]


def test_redrive_is_for_the_same_group_only(harness: StoreHarness) -> None:
    kill(harness, "a", group="g")
    harness.ack(harness.take(group="other"))
    harness.redrive(*harness.dead())
    assert harness.claim(group="other").why == "empty"
    assert harness.claim(group="g").bodies == ["a"]


def test_redrive_twice_says_not_found(harness: StoreHarness) -> None:
    kill(harness, "a")
    (letter,) = harness.dead()
    assert harness.redrive(letter).results == {letter.id: "redriven"}
    assert harness.redrive(letter).results == {letter.id: "not_found"}
    assert counts(harness.group("g")) == {"held": 1}


def test_pruned_message_is_redriven_from_its_snapshot(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=10)
    harness.send([NewMessage(b"first", transaction_id="t", headers={"h": "1"}), NewMessage(b"second")])
    first, second = harness.claim(group="g").deliveries
    harness.reject(first)
    harness.ack(second)
    harness.advance(11)
    harness.sweep()
    assert harness.store.ask(q.Browse(queue="q")) == []
    harness.redrive(*harness.dead())
    got = harness.take(group="g")
    assert (got.message.payload, got.message.headers, got.transaction_id) == (b"first", {"h": "1"}, "t")
    assert harness.ack(got) == ["acked"]
    harness.push("third")
    harness.advance(11)
    harness.sweep()
    assert [r.status for r in harness.push("t again", txid="t")] == ["duplicate"]


def test_pruned_redriven_message_keeps_neighbours_duplicate(harness: StoreHarness) -> None:
    harness.configure(retention_seconds=10)
    harness.number(3)
    hand = harness.claim(group="g").deliveries
    harness.reject(hand[1])
    harness.ack(hand[0], hand[2])
    harness.advance(11)
    harness.sweep()
    harness.redrive(*harness.dead())
    harness.ack(harness.take(group="g"))
    harness.push("later")
    harness.advance(11)
    harness.sweep()
    assert [r.status for i in range(3) for r in harness.push("again", txid=f"t{i}")] == ["duplicate"] * 3


def test_redrive_without_its_group_is_refused_but_replay_works(harness: StoreHarness) -> None:
    kill(harness, "a")
    harness.do(c.DeleteGroup(queue="q", group="g"))
    (letter,) = harness.dead()
    assert harness.redrive(letter).results == {letter.id: "redrive_refused"}
    assert harness.do(c.Replay(ids=[letter.id])).results == {letter.id: "replayed"}
    assert harness.claim(group="new").bodies == ["a", "a"]


def test_redrive_after_a_seek_back_is_refused(harness: StoreHarness) -> None:
    kill(harness, "a", "b")
    harness.seek("start", group="g")
    (second, first) = harness.dead()
    assert set(harness.redrive(first, second).results.values()) == {"redrive_refused"}
    assert harness.claim(group="g").bodies == ["a", "b"]


def test_redrive_after_a_seek_forward_returns_dead_letters(harness: StoreHarness) -> None:
    kill(harness, "a", "b", "c", "d")
    harness.seek("end", group="g")
    letters = {d.payload: d for d in harness.dead()}
    answer = harness.redrive(letters[b"b"], letters[b"d"])
    assert set(answer.results.values()) == {"redriven"}
    assert harness.store.audit() == []
    assert harness.claim(group="g").bodies == ["b", "d"]


def test_replay_is_a_copy_at_the_end_and_idempotent(harness: StoreHarness) -> None:
    harness.send([NewMessage(b"a", transaction_id="t", headers={"h": "1"}, priority=4, partition="p")])
    harness.reject(harness.take(group="g"))
    (letter,) = harness.dead()
    assert harness.do(c.Replay(ids=[letter.id])).count == 1
    assert harness.do(c.Replay(ids=[letter.id])).results == {letter.id: "not_found"}
    got = harness.take(group="g")
    assert (got.seq, got.priority, got.partition, got.message.headers) == (1, 4, "p", {"h": "1"})
    assert got.message.id != letter.message_id
    assert counts(harness.group("g")) == {"dead": 1, "held": 1}


def test_replay_to_another_place(harness: StoreHarness) -> None:
    kill(harness, "a", "b")
    harness.do(c.Replay(ids=[d.id for d in harness.dead()], queue="r", partition="elsewhere"))
    assert sorted(d.body for d in harness.claim(queue="r").deliveries) == ["a", "b"]
    assert harness.store.ask(q.Browse(queue="r"))[0].partition == "elsewhere"


def test_replay_that_is_refused_changes_nothing(harness: StoreHarness) -> None:
    kill(harness, "small", "much too large")
    harness.configure("r", max_payload_bytes=5)
    before = harness.everything()
    by_size = sorted(harness.dead(), key=lambda d: len(d.payload))
    with pytest.raises(PayloadTooLarge):
        harness.do(c.Replay(ids=[d.id for d in by_size], queue="r"))
    assert harness.everything() == before


def test_purge_removes_dead_letters_and_keeps_counts(harness: StoreHarness) -> None:
    kill(harness, "a", "b")
    kill(harness, "c", group="h")
    by_body = {(d.group, d.payload): d.id for d in harness.dead()}
    assert len(by_body) == 5
    assert harness.do(c.PurgeDead(ids=[by_body["g", b"a"], "unknown"])).count == 1
    assert harness.do(c.PurgeDead(queue="q", group="h")).count == 3
    assert [d.payload for d in harness.dead()] == [b"b"]
    assert counts(harness.group("g")) == {"dead": 2, "unread": 1}
    assert harness.do(c.PurgeDead(queue="q")).count == 1
    assert isinstance(harness.together(c.PurgeDead(queue="nowhere"))[0], AckwiseError)


def test_purge_reads_a_bounded_number_per_turn(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_PURGED", 2)
    kill(harness, "a", "b", "c")
    kill(harness, "d", group="h")
    command = c.PurgeDead(queue="q", group="g")
    left = []
    answer = harness.do(command)
    while (rest := c.next_command(command, answer)) is not None:
        left.append(len(harness.dead(group="g")))
        answer = harness.do(rest)
    assert left[0] == 1
    assert answer == Counted(3)
    assert {letter.group for letter in harness.dead()} == {"h"}


def test_purge_of_a_group_covers_all_queues(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_PURGED", 2)
    kill(harness, "a", "b")
    harness.push("c", queue="r")
    harness.reject(*harness.claim(queue="r", group="g").deliveries)
    kill(harness, "d", group="h")
    assert harness.complete(c.PurgeDead(group="g")).count == 3
    assert {letter.group for letter in harness.dead()} == {"h"}


def test_purge_keeps_letters_that_die_meanwhile(harness: StoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_PURGED", 2)
    kill(harness, "a", "b", "c")
    command = c.PurgeDead(queue="q")
    rest = c.next_command(command, harness.do(command))
    assert rest is not None
    harness.advance(1)
    kill(harness, "later")
    assert harness.complete(rest).count == 3
    assert [letter.payload for letter in harness.dead()] == [b"later"]


@pytest.mark.parametrize("field", ["until", "dead_at", "id", "count"])
def test_purge_place_out_of_range_is_refused(harness: StoreHarness, field: str) -> None:
    place = msgspec.structs.replace(PurgePlace(0), **{field: 1 << 70})
    with pytest.raises(BadInput, match=field):
        harness.do(c.PurgeDead(group="g", behind=place))


def test_message_that_dies_again_has_one_letter(harness: StoreHarness) -> None:
    kill(harness, "a", error="first")
    harness.seek("start", group="g")
    harness.reject(harness.take(group="g"), error="second")
    assert [d.error for d in harness.dead()] == ["second"]
    assert harness.redrive(*harness.dead()).count == 1


def test_dead_letters_off_drops_and_counts_expired(harness: StoreHarness) -> None:
    harness.configure(dead_letters=False, retry_limit=1)
    harness.push("a", "b", "c")
    first, second, third = harness.claim(seconds=5).deliveries
    assert harness.reject(first) == ["dead"]
    assert harness.retry(second) == ["dead"]
    harness.release(third)
    harness.claim(seconds=5)
    harness.advance(5)
    harness.sweep("expire")
    assert harness.dead() == []
    assert counts(harness.group()) == {"expired": 3}
