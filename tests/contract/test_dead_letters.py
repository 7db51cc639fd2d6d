"""Dead letters: found, put back, copied, forgotten."""

from __future__ import annotations

import pytest

from ackwise.core import commands as c
from ackwise.core import queries as q
from ackwise.core.errors import AckwiseError, PayloadTooLarge
from ackwise.core.messages import NewMessage
from tests.contract.support import Desk, counts


def kill(desk: Desk, *bodies: str, group: str = "g", error: str = "bad", **where: str) -> None:
    desk.push(*bodies, **where)  # type: ignore[arg-type]
    desk.reject(*desk.claim(100, group=group).deliveries, error=error)


def test_a_letter_has_all_that_is_known(desk: Desk) -> None:
    message = NewMessage(b"\xff", transaction_id="t", headers={"h": "1"}, content_type="x/y", partition="p")
    (receipt,) = desk.send([message])
    born = desk.clock.now()
    desk.advance(5)
    got = desk.take(group="g")
    desk.reject(got, error="why", error_type="KeyError")
    (letter,) = desk.dead()
    assert (letter.queue, letter.partition, letter.partition_id, letter.group) == ("q", "p", receipt.partition_id, "g")
    assert (letter.seq, letter.message_id, letter.transaction_id) == (0, receipt.message_id, "t")
    assert (letter.payload, letter.headers, letter.content_type) == (b"\xff", {"h": "1"}, "x/y")
    assert (letter.created_at, letter.dead_at) == (born, desk.clock.now())
    assert (letter.error, letter.error_type, letter.deliveries) == ("why", "KeyError", 1)


def test_filters(desk: Desk) -> None:
    kill(desk, "a")
    first_at = desk.clock.now()
    desk.advance(60)
    kill(desk, "b", partition="p", group="h")
    desk.push("c", queue="r")
    desk.reject(desk.take(queue="r"))
    payloads = {
        "queue": [d.payload for d in desk.dead(queue="q")],
        "group": [d.payload for d in desk.dead(group="g")],
        "partition": [d.payload for d in desk.dead(partition="p", group="h")],
        "until": [d.payload for d in desk.dead(before_at=first_at)],
        "since": sorted(d.payload for d in desk.dead(after_at=first_at + 1)),
        "reason": sorted(d.payload for d in desk.dead(reason="rejected", after_at=first_at + 1)),
        "no such reason": desk.dead(reason="max_wait"),
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


def test_filter_by_ids(desk: Desk) -> None:
    kill(desk, "a", "b", "c")
    wanted = [d.id for d in desk.dead() if d.payload != b"b"]
    page = desk.store.list_dead(q.ListDead(ids=wanted))
    assert (sorted(d.payload for d in page.letters), page.total) == ([b"a", b"c"], 2)
    assert desk.store.list_dead(q.ListDead(ids=[])).total == 0


def test_pages_and_total(desk: Desk) -> None:
    for body in "abcde":
        kill(desk, body)
        desk.advance(1)
    seen = []
    for offset in (0, 2, 4):
        page = desk.store.list_dead(q.ListDead(queue="q", limit=2, offset=offset))
        assert page.total == 5
        seen += [d.payload.decode() for d in page.letters]
    assert seen == ["e", "d", "c", "b", "a"]


def test_redrive_goes_to_the_old_place_before_what_is_left(desk: Desk) -> None:
    desk.number(4)
    hand = desk.claim(2, group="g")
    desk.reject(hand.deliveries[0])
    desk.ack(hand.deliveries[1])
    assert desk.redrive(*desk.dead()).count == 1
    assert desk.dead() == []
    assert counts(desk.group("g")) == {"acked": 1, "held": 1, "unread": 2}
    again = desk.claim(group="g", order="strict").deliveries
    assert [(d.body, d.seq, d.failures, d.attempt) for d in again] == [("0", 0, 0, 1), ("2", 2, 0, 1), ("3", 3, 0, 1)]
    desk.reject(again[0])
    assert [line["event"] for line in desk.dead()[0].history] == ["reject", "redrive", "reject"]


def test_redrive_is_for_the_same_group_only(desk: Desk) -> None:
    kill(desk, "a", group="g")
    desk.ack(desk.take(group="other"))
    desk.redrive(*desk.dead())
    assert desk.claim(group="other").why == "empty"
    assert desk.claim(group="g").bodies == ["a"]


def test_redrive_twice_says_not_found(desk: Desk) -> None:
    kill(desk, "a")
    (letter,) = desk.dead()
    assert desk.redrive(letter).results == {letter.id: "redriven"}
    assert desk.redrive(letter).results == {letter.id: "not_found"}
    assert counts(desk.group("g")) == {"held": 1}


def test_a_pruned_message_is_redriven_from_its_snapshot(desk: Desk) -> None:
    desk.configure(retention_seconds=10)
    desk.send([NewMessage(b"first", transaction_id="t", headers={"h": "1"}), NewMessage(b"second")])
    first, second = desk.claim(group="g").deliveries
    desk.reject(first)
    desk.ack(second)
    desk.advance(11)
    desk.sweep()
    assert desk.store.browse(q.Browse(queue="q")) == []
    desk.redrive(*desk.dead())
    got = desk.take(group="g")
    assert (got.message.payload, got.message.headers, got.transaction_id) == (b"first", {"h": "1"}, "t")
    assert desk.ack(got) == ["acked"]
    desk.push("third")
    desk.advance(11)
    desk.sweep()
    assert [r.status for r in desk.push("t again", txid="t")] == ["duplicate"]


def test_after_a_redriven_message_is_pruned_again_its_neighbours_are_still_remembered(desk: Desk) -> None:
    desk.configure(retention_seconds=10)
    desk.number(3)
    hand = desk.claim(group="g").deliveries
    desk.reject(hand[1])
    desk.ack(hand[0], hand[2])
    desk.advance(11)
    desk.sweep()
    desk.redrive(*desk.dead())
    desk.ack(desk.take(group="g"))
    desk.push("later")
    desk.advance(11)
    desk.sweep()
    assert [r.status for i in range(3) for r in desk.push("again", txid=f"t{i}")] == ["duplicate"] * 3


def test_without_its_group_redrive_is_refused_and_replay_works(desk: Desk) -> None:
    kill(desk, "a")
    desk.do(c.DeleteGroup(queue="q", group="g"))
    (letter,) = desk.dead()
    assert desk.redrive(letter).results == {letter.id: "redrive_refused"}
    assert desk.do(c.Replay(ids=[letter.id])).results == {letter.id: "replayed"}
    assert desk.claim(group="new").bodies == ["a", "a"]


def test_after_a_seek_back_the_message_is_before_the_group_again(desk: Desk) -> None:
    kill(desk, "a", "b")
    desk.seek("start", group="g")
    (second, first) = desk.dead()
    assert set(desk.redrive(first, second).results.values()) == {"redrive_refused"}
    assert desk.claim(group="g").bodies == ["a", "b"]


def test_after_a_seek_forward_dead_letters_can_still_come_back(desk: Desk) -> None:
    kill(desk, "a", "b", "c", "d")
    desk.seek("end", group="g")
    letters = {d.payload: d for d in desk.dead()}
    answer = desk.redrive(letters[b"b"], letters[b"d"])
    assert set(answer.results.values()) == {"redriven"}
    assert desk.store.audit() == []
    assert desk.claim(group="g").bodies == ["b", "d"]


def test_replay_is_a_copy_at_the_end_and_idempotent(desk: Desk) -> None:
    desk.send([NewMessage(b"a", transaction_id="t", headers={"h": "1"}, priority=4, partition="p")])
    desk.reject(desk.take(group="g"))
    (letter,) = desk.dead()
    assert desk.do(c.Replay(ids=[letter.id])).count == 1
    assert desk.do(c.Replay(ids=[letter.id])).results == {letter.id: "not_found"}
    got = desk.take(group="g")
    assert (got.seq, got.priority, got.partition, got.message.headers) == (1, 4, "p", {"h": "1"})
    assert got.message.id != letter.message_id
    assert counts(desk.group("g")) == {"dead": 1, "held": 1}


def test_replay_to_another_place(desk: Desk) -> None:
    kill(desk, "a", "b")
    desk.do(c.Replay(ids=[d.id for d in desk.dead()], queue="r", partition="elsewhere"))
    assert sorted(d.body for d in desk.claim(queue="r").deliveries) == ["a", "b"]
    assert desk.store.browse(q.Browse(queue="r"))[0].partition == "elsewhere"


def test_a_replay_that_is_refused_changes_nothing(desk: Desk) -> None:
    kill(desk, "small", "much too large")
    desk.configure("r", max_payload_bytes=5)
    before = desk.everything()
    by_size = sorted(desk.dead(), key=lambda d: len(d.payload))
    with pytest.raises(PayloadTooLarge):
        desk.do(c.Replay(ids=[d.id for d in by_size], queue="r"))
    assert desk.everything() == before


def test_purge(desk: Desk) -> None:
    kill(desk, "a", "b")
    kill(desk, "c", group="h")
    by_body = {(d.group, d.payload): d.id for d in desk.dead()}
    assert len(by_body) == 5
    assert desk.do(c.PurgeDead(ids=[by_body["g", b"a"], "unknown"])).count == 1
    assert desk.do(c.PurgeDead(queue="q", group="h")).count == 3
    assert [d.payload for d in desk.dead()] == [b"b"]
    assert counts(desk.group("g")) == {"dead": 2, "unread": 1}
    assert desk.do(c.PurgeDead(queue="q")).count == 1
    assert isinstance(desk.together(c.PurgeDead(queue="nowhere"))[0], AckwiseError)


def test_a_message_that_dies_again_has_one_letter(desk: Desk) -> None:
    kill(desk, "a", error="first")
    desk.seek("start", group="g")
    desk.reject(desk.take(group="g"), error="second")
    assert [d.error for d in desk.dead()] == ["second"]
    assert desk.redrive(*desk.dead()).count == 1


def test_dead_letters_off_drops_and_counts_expired(desk: Desk) -> None:
    desk.configure(dead_letters=False, retry_limit=1)
    desk.push("a", "b", "c")
    first, second, third = desk.claim(seconds=5).deliveries
    assert desk.reject(first) == ["dead"]
    assert desk.retry(second) == ["dead"]
    desk.release(third)
    desk.claim(seconds=5)
    desk.advance(5)
    desk.sweep("expire")
    assert desk.dead() == []
    assert counts(desk.group()) == {"expired": 3}
