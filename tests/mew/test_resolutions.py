"""Where the documents are silent or disagree: one test for each resolution of the contract's section 5."""

from __future__ import annotations

import pytest

from ackwise.clock import ManualClock
from ackwise.core.settlement import failure_is_final
from ackwise.graph.watch_options import WatchSpec
from ackwise.mew import MewError, Session
from tests.mew.prompt import Prompt, raised

JOBS = """
node Queue { name: String }
node Job { title: String, state: String = "pending", size: Int = 1, group: String? }
edge waits_in(job: Job, queue: Queue) { since: Int = 0 }
"""
CONSUME = "w = WATCH j: Job [mode: consume] RETURN j"


@pytest.fixture
def jobs(prompt: Prompt) -> Prompt:
    prompt.ok(JOBS)
    return prompt


def spawn(prompt: Prompt, *titles: str) -> None:
    prompt.ok(" ".join(f'SPAWN {title}: Job {{ title = "{title}" }}' for title in titles))


def test_5_01_delivery_id_token(jobs: Prompt) -> None:
    jobs.ok(CONSUME)
    for form in ('ACK "{}"', "ACK $delivery_id", 'ACK #"{}"'):
        spawn(jobs, "a")
        (event,) = jobs.consumed
        assert jobs.ok(form.format(event["delivery_id"]))["outcome"] == "acked"
    jobs.refused("ACK #never_made", "E8004", "'never_made'")


def test_5_02_option_brackets(jobs: Prompt) -> None:
    jobs.ok(
        'a = WATCH j: Job WHERE j.state = "pending" [mode: consume] [ack_timeout: 30s] [max_redeliveries: 3] RETURN j'
    )
    jobs.ok("b = WATCH j: Job [mode: watch, buffer: 10] RETURN j")
    jobs.refused("WATCH j: Job [mode: watch] [mode: consume] RETURN j", "E8009", "'mode'")


def test_5_03_durations(jobs: Prompt) -> None:
    for text in ("30s", "30.seconds", "1m", "1.minute", "250ms", "2.h"):
        jobs.ok(f"WATCH j: Job [mode: consume, ack_timeout: {text}] RETURN j")
    for text in ("0s", "-5s", "30", '"30s"'):
        jobs.refused(f"WATCH j: Job [mode: consume, ack_timeout: {text}] RETURN j", "E8009", "ack_timeout")


def test_5_03_the_timeout_is_told_as_it_was_spelled(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, ack_timeout: 30.seconds] RETURN j")
    spawn(jobs, "a")
    jobs.advance(30)
    assert jobs.notices[0]["message"].endswith("not acknowledged within 30.seconds")


@pytest.mark.parametrize(("limit", "failures"), [(3, 3), (1, 1), (0, 1)])
def test_5_04_redelivery_limit(jobs: Prompt, limit: int, failures: int) -> None:
    jobs.ok(f"w = WATCH j: Job [mode: consume, max_redeliveries: {limit}] RETURN j")
    spawn(jobs, "a")
    outcomes = [jobs.ok("NACK $delivery_id")["outcome"] for _ in range(failures)]
    assert outcomes == ["requeued"] * (failures - 1) + ["deleted"]
    assert jobs.rows("MATCH l: _DeadLetter RETURN l.delivery_attempts") == [[failures]]
    # One place in the code says which failure is final: the core's.
    spec = WatchSpec((), None, max_redeliveries=limit)  # type: ignore[arg-type]
    assert [failure_is_final(spec.policy, n) for n in (failures - 1, failures)] == [False, True]


def test_5_05_message_templates(jobs: Prompt) -> None:
    error = raised(jobs.session, 'ACK "x"')
    assert (error.word, error.name) == ("E8004", "INVALID_DELIVERY_ID")
    assert error.message == "Invalid delivery ID: 'x' not found or already processed"
    assert error.told == "E8004 INVALID_DELIVERY_ID: Invalid delivery ID: 'x' not found or already processed"


def test_5_06_who_receives_ack_timeout(jobs: Prompt) -> None:
    other = jobs.another()
    jobs.ok('w = WATCH j: Job [mode: consume, group: "g"] RETURN j')
    spawn(jobs, "a")
    late = jobs.consumed[0]["delivery_id"]
    other.ok('w = WATCH j: Job [mode: consume, group: "g"] RETURN j')
    jobs.clock.advance(30)
    other.fetch()
    assert other.notices == []
    jobs.fetch()
    assert [(n["code"], n["watch"], n["delivery_id"]) for n in jobs.notices] == [("E8003", "#w", late)]
    jobs.refused("ACK $id", "E8004", late, id=late)
    other.session.close()


def test_5_07_dead_letter_record_without_a_destination(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, max_redeliveries: 1] RETURN j")
    spawn(jobs, "a", "b")
    first, second = jobs.rows('MATCH e: _WatchEvent WHERE e.event_type = "consumed" RETURN e.delivery_id')
    jobs.ok("NACK $id [no_retry]", id=first[0])
    jobs.ok("NACK $id", id=second[0])
    letters = jobs.rows("MATCH l: _DeadLetter, _watch_dead_letter(#w, l) RETURN l.failure_reason, l.original_match")
    assert [reason for reason, _ in letters] == ["no_retry", "max_redeliveries_exceeded"]
    assert '"title":"a"' in letters[0][1]
    assert jobs.rows("MATCH j: Job RETURN COUNT(j)") == [[0]]


def test_5_08_groups_compete(jobs: Prompt) -> None:
    other = jobs.another()
    jobs.ok('WATCH j: Job [mode: consume, group: "one"] RETURN j')
    other.ok('WATCH j: Job [mode: consume, group: "two"] RETURN j')
    jobs.session.run(" ".join(f'SPAWN s{n}: Job {{ title = "{n}" }}' for n in range(4)))
    handed = [*jobs.session.events(1), *other.session.events(1), *jobs.session.events(), *other.session.events()]
    taken = [event.match["id"] for event in handed if event.match is not None and event.delivery_id]
    assert len(taken) == len(set(taken)) == 4
    other.session.close()


def test_5_09_existing_matches_at_creation(jobs: Prompt) -> None:
    spawn(jobs, "a", "b")
    tick = jobs.rows("MATCH t: _Session RETURN logical_time() AS tick")[0][0]
    jobs.ok("f = WATCH j: Job [mode: consume, initial: full] RETURN j")
    assert [event["type"] for event in jobs.events] == ["initial", "consumed", "consumed"]
    jobs.ok("CANCEL WATCH #f")
    jobs.ok("n = WATCH j: Job [mode: consume, initial: none] RETURN j")
    assert jobs.events == []
    jobs.ok('SET #a.title = "still the past"')
    assert jobs.events == []
    spawn(jobs, "c")
    assert [event["match"]["title"] for event in jobs.consumed] == ["c"]
    jobs.ok("ACK $delivery_id CANCEL WATCH #n")
    jobs.ok(f"s = WATCH j: Job [mode: consume, initial: since({tick})] RETURN j")
    assert [event["match"]["title"] for event in jobs.consumed] == ["still the past"]


def test_5_09_what_was_ignored_comes_when_it_begins_to_match(jobs: Prompt) -> None:
    spawn(jobs, "a")
    jobs.ok('n = WATCH j: Job WHERE j.state = "pending" [mode: consume, initial: none] RETURN j')
    jobs.ok('SET #a.state = "parked"')
    assert jobs.events == []
    jobs.ok('SET #a.state = "pending"')
    assert [event["match"]["title"] for event in jobs.consumed] == ["a"]


@pytest.mark.parametrize("on_full", ["drop", "block"])
def test_5_10_buffer_in_consume_mode(jobs: Prompt, on_full: str) -> None:
    jobs.ok(f"w = WATCH j: Job [mode: consume, buffer: 2, on_full: {on_full}] RETURN j")
    jobs.session.run(" ".join(f'SPAWN s{n}: Job {{ title = "{n}" }}' for n in range(5)))
    jobs.fetch()
    assert [event["match"]["title"] for event in jobs.consumed] == ["0", "1"]
    jobs.ok("ACK $id", id=jobs.consumed[0]["delivery_id"])
    assert [event["match"]["title"] for event in jobs.consumed] == ["2"]
    assert jobs.rows("MATCH j: Job RETURN COUNT(j)") == [[4]]


def test_5_10_on_full_error_cancels(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, buffer: 1, on_full: error] RETURN j")
    jobs.session.run('SPAWN a: Job { title = "a" } SPAWN b: Job { title = "b" }')
    jobs.fetch()
    held = jobs.consumed[0]["delivery_id"]
    assert [(n["code"], n["name"]) for n in jobs.notices] == [("E8005", "WATCH_BUFFER_OVERFLOW")]
    assert jobs.rows("MATCH s: _Watch WHERE s.id = #w RETURN s.status") == [["cancelled"]]
    jobs.refused("ACK $id", "E8004", id=held)
    assert jobs.rows("MATCH j: Job RETURN COUNT(j)") == [[2]]


def test_5_11_handle_naming(jobs: Prompt) -> None:
    assert jobs.ok("w = WATCH j: Job RETURN j")["handle"] == "#w"
    assert jobs.ok("WATCH j: Job RETURN j.title, j.size AS big")["handle"] == "#big"
    assert jobs.events[0]["matches"] == []
    assert jobs.ok("WATCH j: Job RETURN j.title, j.size AS big")["handle"] == "#watch_1"
    assert jobs.ok("WATCH j: Job RETURN j")["handle"] == "#watch_2"
    spawn(jobs, "a")
    assert {"j.title": "a", "big": 1} in [event["match"] for event in jobs.events]
    jobs.ok("CANCEL WATCH #watch_2")


def test_5_12_alter(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job RETURN j")
    jobs.ok("ALTER WATCH #w SET [buffer: 5] [on_full: error, delivery: reliable, filter: j.size > 3]")
    for option in (
        "mode: watch", 'group: "g"', "ordering: causal", "visibility: immediate", "window: none", "ack_timeout: 1s",
        "max_redeliveries: 1", "dead_letter: #x", "initial: none", "deliver_on: tick",
    ):  # fmt: skip
        jobs.refused(f"ALTER WATCH #w SET [{option}]", "E8008", f"Option '{option.split(':')[0]}' cannot be changed")
    jobs.refused("ALTER WATCH #w SET [colour: red]", "E8009", "'colour'")
    jobs.ok('SPAWN a: Job { title = "small" } SPAWN b: Job { title = "large", size = 4 }')
    assert [event["match"]["title"] for event in jobs.events] == ["large"]


def test_5_13_cancelled_handles(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job RETURN j CANCEL WATCH #w CANCEL WATCH #w")
    jobs.refused("PAUSE WATCH #w", "E8002", "Cannot pause cancelled watch '#w'")
    jobs.refused("RESUME WATCH #w", "E8002", "Cannot resume cancelled watch '#w'")
    jobs.refused("ALTER WATCH #w SET [buffer: 3]", "E8002", "Cannot alter cancelled watch '#w'")
    jobs.refused("CANCEL WATCH #never", "E8002", "Watch handle '#never' does not exist")
    assert jobs.rows("MATCH s: _Watch WHERE s.id = #w RETURN s.status") == [["cancelled"]]


def test_5_14_delivered_at_least_once_removed_exactly_once(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, delivery: best_effort] RETURN j")
    spawn(jobs, "a")
    early = jobs.consumed[0]["delivery_id"]
    jobs.advance(31)
    late = jobs.consumed[0]["delivery_id"]
    jobs.refused("ACK $id", "E8004", id=early)
    assert jobs.rows("MATCH j: Job RETURN COUNT(j)") == [[1]]
    assert jobs.ok("ACK $id", id=late)["deleted"] == 1
    jobs.refused("ACK $id", "E8004", id=late)


def test_5_15_the_first_element_is_consumed(jobs: Prompt) -> None:
    jobs.ok('SPAWN q: Queue { name = "q" }')
    spawn(jobs, "a")
    jobs.ok("LINK waits_in(#a, #q) w = WATCH q: Queue, waits_in(j, q) [mode: consume] RETURN q.name, j.title")
    assert jobs.consumed[0]["match"] == {"q.name": "q", "j.title": "a"}
    jobs.ok("ACK $delivery_id")
    assert jobs.rows("MATCH q: Queue RETURN q") == []
    assert jobs.rows("MATCH j: Job RETURN j.title") == [["a"]]
    jobs.refused("WATCH s: _Watch [mode: consume] RETURN s", "E8001", "protected type")
    jobs.refused("WATCH l: _DeadLetter, _watch_dead_letter(w, l) [mode: consume] RETURN l", "E8001")


def test_5_15_an_edge_may_be_what_is_consumed(jobs: Prompt) -> None:
    jobs.ok('SPAWN q: Queue { name = "q" }')
    spawn(jobs, "a")
    jobs.ok("w = WATCH waits_in(j, #q) AS e, j: Job [mode: consume, dead_letter: #q] RETURN e.since, j.title")
    jobs.ok("LINK waits_in(#a, #q) { since = 7 }")
    assert jobs.consumed[0]["match"] == {"e.since": 7, "j.title": "a"}
    assert jobs.ok("ACK $delivery_id")["unlinked"] == 1
    jobs.ok("LINK waits_in(#a, #q)")
    dead = jobs.ok("NACK $delivery_id [no_retry]")
    assert (dead["outcome"], dead["unlinked"]) == ("dead_lettered", 1)
    assert jobs.rows("MATCH waits_in(j, q) RETURN j") == []
    assert jobs.rows("MATCH j: Job RETURN j.title") == [["a"]]


def test_5_16_moved_means_relocated(jobs: Prompt) -> None:
    jobs.ok('SPAWN q: Queue { name = "q" } SPAWN dlq: Queue { name = "dlq" }')
    spawn(jobs, "a")
    jobs.ok("LINK waits_in(#a, #q) { since = 5 }")
    jobs.ok("w = WATCH j: Job, waits_in(j, #q) [mode: consume, dead_letter: #dlq] RETURN j")
    jobs.ok("NACK $delivery_id [no_retry]")
    assert jobs.rows("MATCH waits_in(j, q) AS e RETURN q.name, e.since") == [["dlq", 5]]
    jobs.ok("d = WATCH j: Job, waits_in(j, #dlq) [mode: consume] RETURN j")
    assert [event["attempt"] for event in jobs.consumed] == [1]
    jobs.ok("ACK $delivery_id")


def test_5_16_moved_means_held_where_nothing_can_be_relocated(jobs: Prompt) -> None:
    jobs.ok('SPAWN dlq: Queue { name = "dlq" }')
    jobs.ok('w = WATCH j: Job WHERE j.state = "pending" [mode: consume, dead_letter: #dlq] RETURN j')
    spawn(jobs, "a")
    jobs.ok("NACK $delivery_id [no_retry]")
    assert jobs.events == []
    assert jobs.rows("MATCH _dead_letter_item(d, j) RETURN d.name, j.title") == [["dlq", "a"]]
    jobs.ok("d = WATCH j: Job, _dead_letter_item(#dlq, j) [mode: consume] RETURN j")
    assert [event["watch"] for event in jobs.consumed] == ["#d"]
    jobs.ok("CANCEL WATCH #d")
    assert jobs.consumed == []
    # Unlinking the edge is the redrive: available again, with a fresh counter.
    jobs.ok("UNLINK _dead_letter_item(#dlq, #a)")
    assert [(event["watch"], event["attempt"]) for event in jobs.consumed] == [("#w", 1)]


def test_5_17_a_failed_dead_letter_keeps_the_item(jobs: Prompt) -> None:
    jobs.ok("edge only(job: Job, queue: Queue) [queue -> 0..1]")
    jobs.ok('SPAWN q: Queue { name = "q" } SPAWN dlq: Queue { name = "dlq" }')
    spawn(jobs, "a", "b")
    jobs.ok("LINK only(#b, #dlq) LINK only(#a, #q)")
    jobs.ok("w = WATCH j: Job, only(j, #q) [mode: consume, dead_letter: #dlq] RETURN j")
    spent = jobs.consumed[0]["delivery_id"]
    jobs.refused("NACK $delivery_id [no_retry]", "E8007", "cardinality")
    jobs.refused("ACK $id", "E8004", id=spent)
    assert jobs.rows("MATCH l: _DeadLetter RETURN l.failure_reason") == [["no_retry"]]
    assert jobs.rows("MATCH j: Job, only(j, #q) RETURN j.title") == [["a"]]
    jobs.advance(3600)
    assert jobs.consumed == []
    jobs.ok("UNLINK _dead_letter_item(_, #a)")
    assert [event["match"]["title"] for event in jobs.consumed] == ["a"]


def test_5_17_on_the_automatic_path_it_is_a_notice(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, max_redeliveries: 1, dead_letter: #gone] RETURN j")
    spawn(jobs, "a")
    jobs.advance(30)
    assert [notice["code"] for notice in jobs.notices] == ["E8003", "E8007"]
    assert jobs.rows("MATCH j: Job RETURN COUNT(j)") == [[1]]


def test_5_18_sessions(graph_url: str, clock: ManualClock) -> None:
    with Session(graph_url, clock=clock) as session:
        session.run(JOBS)
        me = session.run('SPAWN me: Queue { name = "me" } SPAWN j: Job { title = "mine" } LINK waits_in(#j, #me)')[0]
        with Session(graph_url, clock=clock, actor=me.done.bindings["me"]) as actor:
            assert actor.query("MATCH j: Job, waits_in(j, #self) RETURN j.title") == [{"j.title": "mine"}]
            assert actor.query("MATCH j: Job, waits_in(j, current_actor()) RETURN j.title") == [{"j.title": "mine"}]
        watch = session.run("w = WATCH s: _Session [filter: s.id = current_session()] RETURN s.id")[0].handle
        assert session.events(watch=watch)[0].matches == [{"s.id": session.id}]
        assert raised(session, "INSPECT #self RETURN * KILL #self").word == "constraint"
        rows = session.query("MATCH s: _Session, _session_has_watch(s, w) WHERE w.id = #w RETURN s.id")
        assert rows == [{"s.id": session.id}]


def test_5_19_watch_attributes(jobs: Prompt) -> None:
    jobs.ok('SPAWN dlq: Queue { name = "dlq" }')
    jobs.ok(
        'w = WATCH j: Job WHERE j.size > 2 [mode: consume, group: "g", ack_timeout: 5s, max_redeliveries: 7, '
        "dead_letter: #dlq, buffer: 9, on_full: block] RETURN j"
    )
    row = jobs.ok("MATCH w: _Watch WHERE w.id = #w RETURN w")["rows"][0][0]
    wanted = {
        "pattern": "j: Job WHERE j.size > 2", "mode": "consume", "group": "g", "status": "active",
        "ordering": "arrival", "delivery": "best_effort", "visibility": "committed", "buffer_size": 9,
        "on_full": "block", "ack_timeout": 5000, "max_redeliveries": 7, "dead_letter": "#dlq", "doc": None,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert row["created_at"] == jobs.clock.now() // 1000


def test_5_20_watch_event_retention(jobs: Prompt) -> None:
    jobs.ok("v = WATCH j: Job [buffer: 3] RETURN j.title")
    spawn(jobs, "a", "b", "c", "d", "e")
    positions = "MATCH e: _WatchEvent, _watch_event(#v, e) AS p RETURN p.position, e.event_type"
    assert jobs.rows(positions) == [[4, "added"], [5, "added"], [6, "added"]]
    jobs.ok("CANCEL WATCH #v w = WATCH j: Job [mode: consume, buffer: 2] RETURN j")
    first = jobs.consumed[0]["delivery_id"]
    for _ in range(6):
        jobs.ok("ACK $delivery_id") if jobs.consumed else None
        if jobs.consumed:
            continue
    kept = jobs.rows("MATCH e: _WatchEvent, _watch_event(#w, e) RETURN e.delivery_id")
    assert [first] in kept, "an unsettled delivery is kept however old it is"
    assert len(kept) <= 3


def test_5_21_attempts_count_deliveries(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume] RETURN j")
    spawn(jobs, "a")
    assert jobs.ok("NACK $delivery_id [no_retry]")["attempts"] == 1
    spawn(jobs, "b")
    jobs.ok("NACK $delivery_id")
    assert jobs.ok("NACK $delivery_id [no_retry]")["attempts"] == 2
    assert jobs.rows("MATCH l: _DeadLetter RETURN l.delivery_attempts") == [[1], [2]]


def test_5_22_immediate_visibility_of_a_consumer(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, visibility: immediate] RETURN j")
    jobs.ok('BEGIN SPAWN a: Job { title = "a" }')
    assert jobs.events == []
    jobs.ok("COMMIT")
    assert [event["type"] for event in jobs.events] == ["consumed"]


def test_5_22_immediate_visibility_of_a_watcher(jobs: Prompt) -> None:
    jobs.ok("i = WATCH j: Job [visibility: immediate] RETURN j.title c = WATCH j: Job RETURN j.title")
    jobs.ok('BEGIN SPAWN a: Job { title = "a" }')
    assert [(event["watch"], event["type"]) for event in jobs.events] == [("#i", "added")]
    jobs.ok('SET #a.title = "b"')
    assert [(event["watch"], event["type"]) for event in jobs.events] == [("#i", "changed")]
    jobs.ok("COMMIT")
    assert [(event["watch"], event["match"]) for event in jobs.events] == [("#c", {"j.title": "b"})]
    jobs.ok('BEGIN SPAWN z: Job { title = "z" }')
    assert [event["match"] for event in jobs.events] == [{"j.title": "z"}]
    jobs.ok("ROLLBACK")
    assert jobs.events == []


def test_5_23_windows_and_aggregates(jobs: Prompt) -> None:
    for mode in ("watch", "consume"):
        for window in ("tumbling(5s)", "sliding(1m, 10s)"):
            text = f"WATCH j: Job [mode: {mode}, window: {window}] RETURN j"
            jobs.refused(text, "not_supported", "window is not supported")
        jobs.ok(f"WATCH j: Job [mode: {mode}, window: none] RETURN j")
    jobs.refused("WATCH j: Job [mode: consume] RETURN COUNT(j)", "constraint", "aggregates")


def test_5_24_causal_order_is_commit_order(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, ordering: causal] RETURN j")
    jobs.session.run('SPAWN a: Job { title = "cause" }')
    jobs.session.run('MATCH j: Job WHERE j.title = "cause" SPAWN b: Job { title = "effect" }')
    jobs.fetch()
    assert [event["match"]["title"] for event in jobs.consumed] == ["cause", "effect"]


def test_5_25_event_types_are_lower_case(jobs: Prompt) -> None:
    jobs.ok("v = WATCH j: Job RETURN j")
    spawn(jobs, "a")
    jobs.ok("SET #a.size = 2")
    jobs.ok("KILL #a")
    kinds = jobs.rows("MATCH e: _WatchEvent, _watch_event(#v, e) RETURN e.event_type")
    assert kinds == [["initial"], ["added"], ["changed"], ["removed"]]


def test_5_26_precedence_of_coalesce(jobs: Prompt) -> None:
    spawn(jobs, "a")
    # `??` is below `or`: (null or null) ?? true, and 1 = 2 or (null) gives null, so the right side is taken.
    assert jobs.rows("MATCH j: Job RETURN null or null ?? true AS x, false or null ?? 5 AS y") == [[True, 5]]


def test_5_27_triggers_are_named_and_refused(jobs: Prompt) -> None:
    jobs.refused("MATCH j: Job DO CANCEL WATCH #w", "not_supported", "DO")
    jobs.refused("ON MATCH j: Job DO SPAWN x: Job", "not_supported", "trigger")


def test_5_28_missing_parameter(jobs: Prompt) -> None:
    error = raised(jobs.session, "ACK $x")
    assert error.told == "missing_parameter: Parameter '$x' not provided"
    assert jobs.session.run("MATCH j: Job WHERE j.title = $x? RETURN j")[0].done.rows == []


def test_5_29_push_and_fairness(jobs: Prompt) -> None:
    for n in range(4):
        jobs.session.run(f'SPAWN s{n}: Job {{ title = "{n}" }}')
    first, second = jobs.session, jobs.session.another()
    watch = 'WATCH j: Job [mode: consume, group: "g"] RETURN j'
    one = first.watch(watch, wait=0)
    assert next(one).type == "initial"
    assert next(one).match["title"] == "0"  # type: ignore[index]
    # A later member shares: nothing was set aside for the first.
    two = second.watch(watch, wait=0)
    assert [next(two).type, next(two).match["title"]] == ["initial", "1"]  # type: ignore[index]
    assert next(one).match["title"] == "2"  # type: ignore[index]
    assert next(two).match["title"] == "3"  # type: ignore[index]
    second.close()


def test_5_29_a_failed_item_is_offered_to_another_member_first(jobs: Prompt) -> None:
    other = jobs.another()
    watch = 'w = WATCH j: Job [mode: consume, group: "g"] RETURN j'
    jobs.ok(watch)
    other.ok(watch)
    spawn(jobs, "a")
    jobs.ok("NACK $delivery_id")
    assert jobs.consumed == []
    other.fetch()
    assert [event["attempt"] for event in other.consumed] == [2]
    other.ok("NACK $delivery_id")
    # If the others do not ask, it does not wait for them for ever.
    other.advance(1)
    assert [event["attempt"] for event in other.consumed] == [3]
    other.session.close()


def test_5_30_precedence_of_not(jobs: Prompt) -> None:
    spawn(jobs, "a")
    assert jobs.rows('MATCH j: Job WHERE not j.title = "b" RETURN j.title') == [["a"]]
    assert jobs.rows('MATCH j: Job WHERE not (j.title = "b") and j.size = 1 RETURN j.title') == [["a"]]


def test_5_31_dead_letter_is_printed_as_it_was_written(jobs: Prompt) -> None:
    jobs.ok('w = WATCH j: Job [mode: consume, dead_letter: #"the graveyard"] RETURN j')
    spawn(jobs, "a")
    jobs.refused("NACK $delivery_id [no_retry]", "E8007", "to '#\"the graveyard\"' - node not found")


def test_dead_letter_node_made_after_the_watch_is_found(jobs: Prompt) -> None:
    jobs.ok("w = WATCH j: Job [mode: consume, dead_letter: #later] RETURN j")
    jobs.ok('SPAWN later: Queue { name = "later" }')
    spawn(jobs, "a")
    assert jobs.ok("NACK $delivery_id [no_retry]")["outcome"] == "dead_lettered"
    assert jobs.rows("MATCH _dead_letter_item(#later, j) RETURN j.title") == [["a"]]


def test_errors_are_raised_in_python(jobs: Prompt) -> None:
    with pytest.raises(MewError, match="there is no node type 'Nothing'"):
        jobs.session.run("SPAWN x: Nothing")
