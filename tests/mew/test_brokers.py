"""Several brokers over one graph: who hears of what, and what becomes of a broker's sessions when it is gone."""

from __future__ import annotations

import threading

from ackwise.clock import ManualClock
from ackwise.core.commands import Beat, Sweep
from ackwise.graph.commands import IsSessionHere
from ackwise.mew import Event, Session
from tests.patience import PATIENCE

GRAPH = "node Job { n: Int }"
CONSUME = "w = WATCH j: Job [mode: consume] RETURN j.n"


def test_commit_of_another_broker_wakes_waiting_session(graph_url: str) -> None:
    found: list[Event] = []
    with Session(graph_url) as consumer, Session(graph_url) as producer:
        producer.run(GRAPH)
        consumer.run(CONSUME + " v = WATCH j: Job RETURN j.n")
        consumer.events()

        def wait() -> None:
            while len(found) < 2:
                found.extend(consumer.events(wait=20))

        thread = threading.Thread(target=wait)
        thread.start()
        producer.run("SPAWN j: Job { n = 1 }")
        thread.join(PATIENCE)
        assert sorted(event.type for event in found) == ["added", "consumed"]
        assert producer.ack(next(event for event in found if event.delivery_id)).done.deleted == 1


def test_types_and_watches_of_another_broker_are_known(graph_url: str, clock: ManualClock) -> None:
    with Session(graph_url, clock=clock) as one, Session(graph_url, clock=clock) as two:
        one.run(GRAPH)
        two.run("SPAWN j: Job { n = 1 } v = WATCH j: Job RETURN j.n")
        one.run("SPAWN j: Job { n = 2 } node Other { n: Int }")
        assert [event.match for event in two.events() if event.type == "added"] == [{"j.n": 2}]
        two.run("SPAWN o: Other { n = 3 }")
        assert one.query("MATCH o: Other RETURN o.n") == [{"o.n": 3}]


def test_sessions_of_dead_broker_end_and_deliveries_expire(graph_url: str, clock: ManualClock) -> None:
    gone = Session(graph_url, clock=clock)
    gone.run(GRAPH + " SPAWN j: Job { n = 1 } " + CONSUME)
    (delivery,) = [event for event in gone.events() if event.delivery_id]
    gone._backend.broker.close()  # type: ignore[union-attr]
    with Session(graph_url, clock=clock) as left:
        left.run("")
        broker = left._backend.broker  # type: ignore[union-attr]
        # One that comes up sees at once that the other is gone; its sessions have time to come back all the same.
        broker.send(Beat(instance="comes-up"))
        broker.send(Sweep(duties=("graph",)))
        status = "MATCH w: _Watch RETURN w.status"
        assert left.query(status) == [{"w.status": "active"}]
        clock.advance(20)
        assert left.nack(delivery).done.outcome == "requeued"
        clock.advance(100)
        broker.send(Sweep(duties=("graph",)))
        assert left.query(status) == [{"w.status": "cancelled"}]
        (again,) = [event for event in left.watch(CONSUME, wait=0) if event.delivery_id]
        assert again.attempt == 2
        left.ack(again)


def test_reliable_watch_outlives_every_broker(graph_url: str, clock: ManualClock) -> None:
    gone = Session(graph_url, clock=clock)
    gone.run(GRAPH + " v = WATCH j: Job [delivery: reliable, initial: none] RETURN j.n w = WATCH j: Job RETURN j.n")
    gone._backend.broker.close()  # type: ignore[union-attr]
    status = "MATCH w: _Watch RETURN w.status"
    for number in (1, 2):
        clock.advance(100)
        with Session(graph_url, clock=clock) as left:
            broker = left._backend.broker  # type: ignore[union-attr]
            broker.send(Sweep(duties=("graph",)))
            assert broker.ask(IsSessionHere(session=gone.id))  # so it is not looked after again and again
            left.run("SPAWN j: Job { n = $n }", n=number)
            assert left.query(status) == [{"w.status": "active"}, {"w.status": "cancelled"}]
    with Session(graph_url, clock=clock, session=gone.id) as back:
        assert [event.match for event in back.events(watch="#v")] == [{"j.n": 1}, {"j.n": 2}]
        back.run("CANCEL WATCH #v")
        assert back.query(status) == [{"w.status": "cancelled"}] * 2


def test_session_that_comes_back_calls_its_watches_as_before(graph_url: str, clock: ManualClock) -> None:
    full = "[buffer: 1, on_full: error, initial: none]"
    with Session(graph_url, clock=clock) as session:
        session.run(GRAPH + " node Task { n: Int }")
        session.run("w = WATCH j: Job RETURN j.n w = WATCH t: Task RETURN t.n")
        session.run(f"v = WATCH t: Task RETURN t.n v = WATCH j: Job {full} RETURN j.n")
        session.run("SPAWN j: Job { n = 1 } SPAWN j: Job { n = 2 }")  # the later v is cancelled, and has a notice
        before = dict(session.names)
        with Session(graph_url, clock=clock, session=session.id) as back:
            back.run("SPAWN t: Task { n = 3 }")
            assert back.names["w"] == before["w"]
            assert [event.match for event in back.events(watch="#w") if event.type == "added"] == [{"t.n": 3}]
            assert [event.match for event in back.events(watch="#v") if event.type == "added"] == [{"t.n": 3}]


def test_events_of_a_cancelled_watch_are_kept_for_a_week(graph_url: str, clock: ManualClock) -> None:
    with Session(graph_url, clock=clock) as session:
        session.run(GRAPH + " v = WATCH j: Job RETURN j.n SPAWN j: Job { n = 1 } CANCEL WATCH #v")
        broker = session._backend.broker  # type: ignore[union-attr]
        count = "MATCH e: _WatchEvent, _watch_event(#v, e) RETURN COUNT(e) AS n"
        before = session.query(count)
        clock.advance(6 * 24 * 3600)
        broker.send(Sweep(duties=("graph",)))
        assert session.query(count) == before
        clock.advance(2 * 24 * 3600)
        broker.send(Sweep(duties=("graph",)))
        assert session.query(count) == [{"n": 0}]
        assert session.query("MATCH w: _Watch RETURN w.status") == []


def test_session_without_watches_leaves_nothing_behind(graph_url: str, clock: ManualClock) -> None:
    with Session(graph_url, clock=clock) as one:
        for _ in range(3):
            with one.another() as other:
                other.run("TICK")
        assert one.query("MATCH s: _Session RETURN s.id") == [{"s.id": one.id}]
