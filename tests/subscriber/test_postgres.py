"""The core of what an app promises, on PostgreSQL: the same tests, embedded and over HTTP."""

from __future__ import annotations

import pytest

from tests.subscriber.test_running import (
    test_concurrency_and_held_messages_stay_within_limits,
    test_lease_is_kept_while_its_handler_works,
    test_lost_lease_cancels_handler_and_next_delivery_runs,
    test_pushed_messages_are_handled_once_and_settled,
    test_stop_finishes_handlers_and_releases_the_rest,
    test_unfinished_work_after_grace_is_released_free,
)
from tests.subscriber.test_settling import (
    test_ack_after_nak_and_nak_after_ack_and_anything_after_term,
    test_implicit_success_and_exception,
    test_late_settlement_is_false_and_spares_new_holder,
    test_nak_twice_is_one_redelivery,
    test_nak_waits_as_long_as_it_says,
    test_second_ack_succeeds_without_redelivery,
    test_settlement_before_an_exception_stands,
    test_two_tasks_that_ack_at_once_one_of_them_settles,
)
from tests.subscriber.test_stopping import (
    test_message_acked_at_delivery_is_handled_before_the_end,
    test_settlement_after_handler_return_is_awaited,
)

__all__ = [
    "test_ack_after_nak_and_nak_after_ack_and_anything_after_term",
    "test_concurrency_and_held_messages_stay_within_limits",
    "test_implicit_success_and_exception",
    "test_late_settlement_is_false_and_spares_new_holder",
    "test_lease_is_kept_while_its_handler_works",
    "test_lost_lease_cancels_handler_and_next_delivery_runs",
    "test_message_acked_at_delivery_is_handled_before_the_end",
    "test_nak_twice_is_one_redelivery",
    "test_nak_waits_as_long_as_it_says",
    "test_pushed_messages_are_handled_once_and_settled",
    "test_second_ack_succeeds_without_redelivery",
    "test_settlement_after_handler_return_is_awaited",
    "test_settlement_before_an_exception_stands",
    "test_stop_finishes_handlers_and_releases_the_rest",
    "test_two_tasks_that_ack_at_once_one_of_them_settles",
    "test_unfinished_work_after_grace_is_released_free",
]


@pytest.fixture
def store_url(pg_url: str) -> str:
    """In place of a file."""
    return pg_url
