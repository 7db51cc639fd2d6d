"""The anchored clock: what a step, a boot and a wrong clock do to it."""

from __future__ import annotations

from ackwise.core.validation import MICROS
from ackwise.store.clock_anchor import (
    TOLERANCE,
    Anchor,
    AnchoredClock,
    Measurement,
    Reading,
    StepDetector,
    anchor_for,
    read_machine,
)

NOW = 1_790_000_000 * MICROS
HOUR, DAY, YEAR = 3600 * MICROS, 86400 * MICROS, 365 * 86400 * MICROS


class Machine:
    """A wall clock and a time since boot that a test moves."""

    def __init__(self) -> None:
        self.wall, self.up = NOW, 500 * MICROS
        self.clock = AnchoredClock(lambda: self.wall * 1000, lambda: self.up * 1000)

    def pass_time(self, micros: int) -> None:
        self.wall += micros
        self.up += micros

    def anchor(self) -> Anchor:
        anchor, _ = anchor_for(None, Reading("boot", self.up, self.wall))
        self.clock.follow(anchor)
        return anchor


# one boot


def test_clock_without_anchor_is_the_wall_clock() -> None:
    machine = Machine()
    machine.wall += DAY
    assert (machine.clock.now(), machine.clock.shift()) == (NOW + DAY, 0)


def test_new_anchor_starts_at_the_wall_clock() -> None:
    machine = Machine()
    machine.anchor()
    machine.pass_time(HOUR)
    assert (machine.clock.now(), machine.clock.shift()) == (NOW + HOUR, 0)


def test_step_of_wall_clock_changes_shift_only() -> None:
    machine = Machine()
    machine.anchor()
    machine.wall -= HOUR
    assert (machine.clock.now(), machine.clock.shift()) == (NOW, HOUR)
    machine.wall += DAY
    machine.pass_time(MICROS)
    assert (machine.clock.now(), machine.clock.shift()) == (NOW + MICROS, HOUR - DAY)


def test_small_difference_of_readings_keeps_the_shift() -> None:
    machine = Machine()
    machine.anchor()
    machine.wall += 500  # as if the thread was interrupted between two readings
    assert machine.clock.shift() == 0


def test_second_process_of_a_boot_has_the_same_clock() -> None:
    machine = Machine()
    row = machine.anchor()
    machine.pass_time(HOUR)
    machine.wall += DAY
    anchor, downtime = anchor_for(row, Reading("boot", machine.up, machine.wall))
    assert (anchor, downtime) == (row, 0)


def test_machine_names_its_boot_and_time_since_boot() -> None:
    first, second = read_machine(), read_machine()
    assert first is not None
    assert second is not None
    assert first.boot == second.boot
    assert first.boottime <= second.boottime


# boots

ROW = Anchor("before", 0, NOW - DAY, 0, NOW)


def after_boot(row: Anchor, wall: int) -> tuple[Anchor, int]:
    return anchor_for(row, Reading("after", 7 * MICROS, wall))


def test_boot_counts_the_downtime_by_the_wall_clock() -> None:
    anchor, downtime = after_boot(ROW, NOW + HOUR)
    assert (anchor.anchored, anchor.shift, downtime) == (NOW + HOUR, 0, HOUR)


def test_boot_keeps_the_shift_of_an_earlier_step() -> None:
    anchor, downtime = after_boot(ROW._replace(shift=DAY), NOW - DAY + HOUR)
    assert (anchor.anchored, anchor.shift, downtime) == (NOW + HOUR, DAY, HOUR)


def test_boot_with_a_clock_in_the_past_never_goes_back() -> None:
    anchor, downtime = after_boot(ROW, NOW - YEAR)
    assert (anchor.anchored, anchor.shift, downtime) == (NOW, YEAR, 0)


def test_clock_corrected_after_boot_does_not_move_anchor() -> None:
    machine = Machine()
    machine.wall = NOW + YEAR  # wrong by a year
    anchor, _ = anchor_for(ROW, Reading("after", machine.up, machine.wall))
    machine.clock.follow(anchor)
    machine.wall -= YEAR
    machine.pass_time(HOUR)
    assert (machine.clock.now(), machine.clock.shift()) == (NOW + YEAR + HOUR, YEAR)


def test_machine_restored_to_an_earlier_moment_never_goes_back() -> None:
    """The memory of a virtual machine is a snapshot, and the store is not."""
    row = Anchor("boot", 500 * MICROS, NOW, 0, NOW + DAY)
    anchor, downtime = anchor_for(row, Reading("boot", 600 * MICROS, NOW + 100 * MICROS))
    assert (anchor.anchored, anchor.boottime, downtime) == (NOW + DAY, 600 * MICROS, 0)


# a database's clock


class Database:
    """A database's clock with its row, read with a round trip of 2 ms."""

    def __init__(self) -> None:
        self.wall, self.shift, self.steps, self.up = NOW, 0, 0, 0

    def measure(self, took: int = 2000) -> Measurement:
        before = self.up
        self.pass_time(took // 2)
        wall = self.wall
        self.pass_time(took - took // 2)
        return Measurement(wall, self.shift, self.steps, before, self.up)

    def pass_time(self, micros: int) -> None:
        self.wall += micros
        self.up += micros


def test_detector_sees_no_jump_while_time_passes() -> None:
    database, detector = Database(), StepDetector()
    for pause in (1, MICROS, DAY):
        measured = database.measure()
        assert detector.jump(measured) == 0
        detector.accept(measured)
        database.pass_time(pause)


def test_detector_measures_a_step_of_the_database() -> None:
    database, detector = Database(), StepDetector()
    detector.accept(database.measure())
    database.wall -= HOUR
    assert abs(detector.jump(database.measure()) + HOUR) < 10_000
    database.wall += HOUR + DAY
    assert abs(detector.jump(database.measure()) - DAY) < 10_000


def test_detector_lets_a_small_step_pass() -> None:
    database, detector = Database(), StepDetector()
    detector.accept(database.measure())
    database.wall += TOLERANCE
    assert detector.jump(database.measure()) == 0


def test_detector_trusts_the_correction_of_another_broker() -> None:
    database, detector = Database(), StepDetector()
    detector.accept(database.measure())
    database.wall += DAY
    database.shift, database.steps = -DAY, 1
    corrected = database.measure()
    assert detector.jump(corrected) == 0
    detector.accept(corrected)
    database.wall -= HOUR
    assert abs(detector.jump(database.measure()) + HOUR) < 10_000


def test_detector_measures_a_takeover_without_corrections() -> None:
    """Another database took over: it lacks the last correction, and its clock jumps by as much."""
    database, detector = Database(), StepDetector()
    database.shift, database.steps = -DAY, 1
    detector.accept(database.measure())
    database.shift, database.steps = 0, 0
    assert abs(detector.jump(database.measure()) - DAY) < 10_000


def test_slow_answer_does_not_hide_a_later_step() -> None:
    database, detector = Database(), StepDetector()
    detector.accept(database.measure())
    slow = database.measure(took=20 * MICROS)
    assert detector.jump(slow) == 0
    detector.accept(slow)
    database.wall += 5 * MICROS
    assert abs(detector.jump(database.measure()) - 5 * MICROS) < 20_000


def test_detector_allows_for_drift_over_a_long_pause() -> None:
    database, detector = Database(), StepDetector()
    detector.accept(database.measure())
    database.pass_time(DAY)
    database.wall += 10 * MICROS
    assert detector.jump(database.measure()) == 0
