"""Policies: defaults, merging, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwise.core.errors import BadInput
from ackwise.core.policy import Backoff, GroupPolicy, QueuePolicy, order_for, parse_policy

policies = st.builds(
    QueuePolicy,
    lease_seconds=st.floats(0.001, 86400),
    retry_limit=st.none() | st.integers(0, 1000),
    retry_counting=st.sampled_from(["failures", "retries"]),
    delivery_limit=st.none() | st.just("auto") | st.integers(1, 1000),
    exclusivity=st.sampled_from(["none", "partition", "queue"]),
    order=st.sampled_from([None, "strict", "relaxed"]),
    backoff=st.builds(Backoff, kind=st.just("fixed"), seconds=st.floats(0, 100), jitter=st.floats(0, 1)),
    retention_seconds=st.none() | st.floats(0, 1e6),
    dead_letters=st.booleans(),
)


@given(policies)
def test_policy_comes_back_from_its_text(policy: QueuePolicy) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy.check()), type=QueuePolicy) == policy


@given(policies)
def test_merging_nothing_changes_nothing(policy: QueuePolicy) -> None:
    assert policy.merged({}) == policy


@given(policies, st.integers(0, 9))
def test_merging_changes_what_is_named(policy: QueuePolicy, limit: int) -> None:
    merged = policy.merged({"retry_limit": limit})
    assert merged == msgspec.structs.replace(policy, retry_limit=limit)


def test_default_can_be_set_again() -> None:
    assert QueuePolicy(retry_limit=9).merged({"retry_limit": 3}).retry_limit == 3
    assert QueuePolicy().merged({"retry_limit": None}).retry_limit is None


def test_merged_backoff_is_a_whole_one() -> None:
    policy = QueuePolicy(backoff=Backoff(kind="fixed", seconds=9))
    assert policy.merged({"backoff": {"kind": "exponential", "seconds": 1}}).backoff == Backoff("exponential", 1)
    assert policy.merged({"backoff": Backoff(kind="fixed", seconds=2)}).backoff.seconds == 2


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"nonsense": 1}, "nonsense"),
        ({"retry_limit": "three"}, "retry_limit"),
        ({"retry_limit": -1}, "retry_limit"),
        ({"retry_limit": True}, "retry_limit"),
        ({"retry_limit": 10**400}, "retry_limit"),
        ({"delivery_limit": 0}, "delivery_limit"),
        ({"delivery_limit": "often"}, "delivery_limit"),
        ({"lease_seconds": 0}, "lease"),
        ({"lease_seconds": 86401}, "lease"),
        ({"lease_seconds": float("nan")}, "lease"),
        ({"dedupe_seconds": -1}, "dedupe_seconds"),
        ({"delay_seconds": float("inf")}, "delay_seconds"),
        ({"max_wait_seconds": -1}, "max_wait_seconds"),
        ({"exclusivity": "sometimes"}, "exclusivity"),
        ({"order": "alphabetic"}, "order"),
        ({"on_failure": "panic"}, "on_failure"),
        ({"max_payload_bytes": 0}, "max_payload_bytes"),
        ({"backoff": {"kind": "wild"}}, "backoff"),
        ({"backoff": {"jitter": 2}}, "jitter"),
        ({"dead_letters": "no"}, "dead_letters"),
        ({"expiry_counts": 1}, "expiry_counts"),
    ],
)
def test_policy_with_invalid_field_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInput, match=named):
        parse_policy(fields)
    with pytest.raises(BadInput, match=named):
        QueuePolicy().merged(fields)


@pytest.mark.parametrize("fields", [{"a": object()}, {5: 5}, {"retry_limit": {1, 2}}, {"backoff": lambda: None}])
def test_policy_change_with_an_object_is_refused(fields: dict[Any, Any]) -> None:
    with pytest.raises(BadInput):
        QueuePolicy().merged(fields)


@pytest.mark.parametrize(
    "policy",
    [
        QueuePolicy(exclusivity="sometimes"),  # type: ignore[arg-type]
        QueuePolicy(retry_limit="3"),  # type: ignore[arg-type]
        QueuePolicy(backoff=None),  # type: ignore[arg-type]
        QueuePolicy(backoff=Backoff(kind="wild")),  # type: ignore[arg-type]
        QueuePolicy(lease_seconds=object()),  # type: ignore[arg-type]
    ],
)
def test_policy_built_by_hand_is_checked_as_well(policy: QueuePolicy) -> None:
    with pytest.raises(BadInput):
        policy.check()


def test_order_follows_exclusivity_unless_named() -> None:
    assert [order_for(e) for e in ("none", "partition", "queue")] == ["relaxed", "strict", "strict"]
    assert QueuePolicy(exclusivity="queue").effective_order == "strict"
    assert QueuePolicy(exclusivity="queue", order="relaxed").effective_order == "relaxed"


def test_group_overrides_what_it_names() -> None:
    queue = QueuePolicy(retry_limit=5, backoff=Backoff("fixed", 9))
    assert GroupPolicy().over(queue) is queue
    assert GroupPolicy(retry_limit=None).over(queue).retry_limit is None
    assert GroupPolicy(retry_limit=1).over(queue).backoff == queue.backoff
    assert GroupPolicy(backoff=Backoff("fixed", 1)).over(queue).retry_limit == 5


@pytest.mark.parametrize("policy", [GroupPolicy(), GroupPolicy(retry_limit=None), GroupPolicy(2, Backoff("fixed", 1))])
def test_group_policy_comes_back_from_its_text(policy: GroupPolicy) -> None:
    assert msgspec.json.decode(msgspec.json.encode(policy.check()), type=GroupPolicy) == policy


@pytest.mark.parametrize(
    "policy",
    [
        GroupPolicy(retry_limit=-1),
        GroupPolicy(retry_limit="3"),  # type: ignore[arg-type]
        GroupPolicy(backoff=Backoff(kind="schedule")),
    ],
)
def test_bad_group_policy_is_refused(policy: GroupPolicy) -> None:
    with pytest.raises(BadInput):
        policy.check()
