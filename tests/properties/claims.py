"""What a claim may be answered, judged against the model."""

from __future__ import annotations

from ackwise.core.answers import Claimed
from ackwise.core.commands import Claim
from tests.properties.model import DONE, Cell, LaneKey, Lease, Model, View


class Judge:
    """One claim at one instant; expiry and promotion have happened."""

    def __init__(self, model: Model, command: Claim, now: int) -> None:
        self.model, self.command, self.now = model, command, now
        self.exclusivity = command.exclusivity or model.policy.exclusivity
        same = self.exclusivity == model.policy.exclusivity
        order = command.order or (model.policy.order if same else None)
        self.strict = (order or ("relaxed" if self.exclusivity == "none" else "strict")) == "strict"

    def mine(self, owner: str) -> bool:
        return self.command.owner is not None and owner == self.command.owner

    def others_hold(self, partition: str) -> list[Lease]:
        """Leases of other owners that hold something in a partition."""
        return [
            lease
            for lease in self.model.live(self.command.group)
            if not self.mine(lease.owner) and any(lane[0] == partition for lane, _, _ in self.model.held_by(lease))
        ]

    def shut_out(self) -> bool:
        others = [lease for lease in self.model.live(self.command.group) if not self.mine(lease.owner)]
        if any(lease.exclusivity == "queue" for lease in others):
            return True
        return self.exclusivity == "queue" and bool(others)

    def may_enter(self, partition: str) -> bool:
        others = self.others_hold(partition)
        if any(lease.exclusivity != "none" for lease in others):
            return False
        return self.exclusivity == "none" or not others

    def wanted(self, lane: LaneKey) -> bool:
        c = self.command
        return (c.partitions is None or lane[0] in c.partitions) and (c.priorities is None or lane[1] in c.priorities)

    def offers(self, lane: LaneKey, view: View) -> bool:
        """Whether a claim that holds nothing yet could take something here."""
        fresh = view.next < len(self.model.lanes[lane])
        for _, cell in sorted(view.cells.items()):
            if cell.state == "waiting" and cell.due <= self.now:
                return True
            if self.strict and cell.state == "waiting":
                return False
            if self.strict and cell.state == "leased" and not self.mine(self._owner(cell)):
                return False
        return fresh

    def _owner(self, cell: Cell) -> str:
        assert cell.lease is not None
        return self.model.leases[cell.lease].owner

    def something_to_give(self) -> bool:
        if self.shut_out():
            return False
        return any(
            self.wanted(lane) and self.may_enter(lane[0]) and self.offers(lane, view)
            for lane, view in self.model.lanes_of(self.command.group)
        )

    def check_granted(self, claimed: Claimed) -> list[tuple[LaneKey, int]]:
        """Every granted message may be handed out; what was granted."""
        assert not self.shut_out(), "granted although the queue is held"
        taken: list[tuple[LaneKey, int]] = []
        for grant in claimed.grants:
            lane = (grant.partition, grant.priority)
            view = self.model.views[lane, self.command.group]
            assert self.wanted(lane)
            assert self.may_enter(lane[0]), f"{lane} is held by another owner"
            for seq in range(grant.lo, grant.hi):
                self.check_message(lane, view, seq, taken, grant.attempt, grant.failures)
                taken.append((lane, seq))
        assert 0 < len(taken) <= self.command.most
        assert len(set(taken)) == len(taken), "a message twice in one claim"
        if not self.command.bulk and len(taken) > 1:
            assert not any(self.on_probation(lane, seq) for lane, seq in taken), "probation in company"
        return taken

    def on_probation(self, lane: LaneKey, seq: int) -> bool:
        cell = self.model.views[lane, self.command.group].cells.get(seq)
        return cell is not None and cell.probation

    def check_message(
        self, lane: LaneKey, view: View, seq: int, taken: list[tuple[LaneKey, int]], attempt: int, failures: int
    ) -> None:
        cell = view.cells.get(seq)
        if cell is None:
            fresh = view.next + sum(1 for at, s in taken if at == lane and s >= view.next)
            assert seq == fresh < len(self.model.lanes[lane]), f"{lane}/{seq} is not the next fresh one"
        else:
            assert cell.state == "waiting", f"{lane}/{seq} was handed out while {cell.state}"
            assert cell.due <= self.now
        assert (attempt, failures) == ((cell.deliveries + 1, cell.failures) if cell else (1, 0))
        if self.strict:
            for before, earlier in view.cells.items():
                if before < seq and (lane, before) not in taken and earlier.state not in DONE:
                    own = earlier.state == "leased" and self.mine(self._owner(earlier))
                    assert own, f"{lane}/{seq} overtook {before}, which is {earlier.state}"

    def hand_over(self, taken: list[tuple[LaneKey, int]], no: int | None) -> None:
        """Put what was granted under a lease, or out of the way."""
        for lane, seq in taken:
            view = self.model.views[lane, self.command.group]
            cell = view.cells.setdefault(seq, Cell("unread"))
            view.next = max(view.next, seq + 1)
            cell.deliveries += 1
            cell.state, cell.lease = ("acked", None) if no is None else ("leased", no)
