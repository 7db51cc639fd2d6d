"""The core of what an app promises, on PostgreSQL: the same tests, embedded and over HTTP."""

from __future__ import annotations

import pytest

from tests.subscriber.test_running import (
    test_a_lease_is_kept_while_its_handler_works,
    test_a_lost_lease_cancels_the_handler_and_the_next_delivery_is_handled,
    test_everything_is_handled_once_and_settled,
    test_no_more_than_concurrency_at_once_and_no_more_held_than_allowed,
    test_stopping_lets_handlers_finish_and_gives_back_what_was_not_begun,
    test_what_is_not_finished_within_the_grace_is_released_without_a_failure,
)
from tests.subscriber.test_settling import (
    test_a_nak_waits_as_long_as_it_says,
    test_ack_after_nak_and_nak_after_ack_and_anything_after_term,
    test_ack_twice_both_succeed_and_it_is_not_delivered_again_past_the_deadline,
    test_implicit_success_and_exception,
    test_nak_twice_is_one_redelivery,
    test_settling_after_the_deadline_is_false_and_leaves_the_new_holder_alone,
    test_two_tasks_that_ack_at_once_one_of_them_settles,
    test_what_was_settled_before_an_exception_stands,
)
from tests.subscriber.test_stopping import (
    test_what_is_settled_after_its_handler_returned_is_waited_for,
    test_what_was_acked_at_delivery_is_handled_before_the_end,
)

__all__ = [
    "test_a_lease_is_kept_while_its_handler_works",
    "test_a_lost_lease_cancels_the_handler_and_the_next_delivery_is_handled",
    "test_a_nak_waits_as_long_as_it_says",
    "test_ack_after_nak_and_nak_after_ack_and_anything_after_term",
    "test_ack_twice_both_succeed_and_it_is_not_delivered_again_past_the_deadline",
    "test_everything_is_handled_once_and_settled",
    "test_implicit_success_and_exception",
    "test_nak_twice_is_one_redelivery",
    "test_no_more_than_concurrency_at_once_and_no_more_held_than_allowed",
    "test_settling_after_the_deadline_is_false_and_leaves_the_new_holder_alone",
    "test_stopping_lets_handlers_finish_and_gives_back_what_was_not_begun",
    "test_two_tasks_that_ack_at_once_one_of_them_settles",
    "test_what_is_not_finished_within_the_grace_is_released_without_a_failure",
    "test_what_is_settled_after_its_handler_returned_is_waited_for",
    "test_what_was_acked_at_delivery_is_handled_before_the_end",
    "test_what_was_settled_before_an_exception_stands",
]


@pytest.fixture
def store_url(pg_url: str) -> str:
    """In place of a file."""
    return pg_url
