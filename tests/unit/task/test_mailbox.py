"""Mail, wake-ups and timers of one task."""

import threading
import traceback
from collections.abc import Callable
from typing import Any, cast

import pytest

from headrace.core.clock import ManualClock
from headrace.task.mailbox import Mailbox, MailboxTimers


def test_mails_come_out_in_the_order_they_went_in() -> None:
    mailbox = Mailbox()
    seen: list[int] = []
    for number in range(3):
        mailbox.put(lambda number=number: seen.append(number))
    for mail in mailbox.take_all():
        mail()
    assert seen == [0, 1, 2]
    assert mailbox.take_all() == []


def test_an_interruption_that_user_code_catches_again_and_again_does_not_grow() -> None:
    mailbox = Mailbox()

    def fail() -> None:
        raise ValueError("bad row")

    try:
        fail()
    except ValueError as error:
        mailbox.interrupt(error)
    seen: list[list[str]] = []
    for _ in range(3):
        with pytest.raises(ValueError, match="bad row") as raised:
            mailbox.check_interrupted()
        frames = traceback.extract_tb(raised.value.__traceback__)
        seen.append([frame.name for frame in frames])
    assert seen[0] == seen[1] == seen[2]
    # Where it came from is told as well.
    assert {"check_interrupted", "fail"} <= set(seen[0])


def test_a_wake_up_before_the_wait_is_not_lost() -> None:
    mailbox = Mailbox()
    mailbox.take_all()
    mailbox.wake()
    mailbox.wait(None)  # would block for ever otherwise
    assert mailbox.take_all() == []


class Bell:
    """In place of the lock: notes for how long it is waited for, and what `meanwhile` does happens during the wait."""

    def __init__(self, mailbox: Mailbox, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.timeouts_s: list[float] = []
        self.ring_count = 0
        self._meanwhile: Callable[[], object] = meanwhile
        self.is_late = False
        """Whether the time is just over when it rings."""
        mailbox._bell = cast(Any, self)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]

    def acquire(self, timeout: float = -1) -> bool:
        assert timeout == -1 or 0 <= timeout <= threading.TIMEOUT_MAX, "a lock refuses it"
        self.timeouts_s.append(timeout)
        meanwhile, self._meanwhile = self._meanwhile, lambda: None
        meanwhile()
        if self.ring_count == 0 or (self.is_late and len(self.timeouts_s) == 1):
            assert timeout != -1, "nobody would ever end this wait"
            return False
        self.ring_count -= 1
        return True

    def release(self) -> None:
        assert self.ring_count == 0, "a lock that is free is not released"
        self.ring_count += 1


@pytest.mark.parametrize("is_mail", [True, False], ids=["mail", "wake-up"])
def test_what_comes_during_the_wait_ends_it(is_mail: bool) -> None:
    mailbox = Mailbox()
    bell = Bell(mailbox, (lambda: mailbox.put(lambda: None)) if is_mail else mailbox.wake)
    mailbox.wait(None)
    assert bell.timeouts_s == [-1] and bell.ring_count == 0
    assert len(mailbox.take_all()) == is_mail


def test_a_wait_that_nobody_ends_is_over_in_time_and_the_next_one_too() -> None:
    mailbox = Mailbox()
    bell = Bell(mailbox)
    mailbox.wait(20)
    mailbox.wait(0)
    assert bell.timeouts_s == [0.02, 0]
    mailbox.wake()
    assert bell.ring_count == 0, "nobody waits any more"


def test_a_wake_up_in_the_moment_when_the_time_is_over_is_not_heard_by_the_next_wait() -> None:
    mailbox = Mailbox()
    bell = Bell(mailbox, mailbox.wake)
    bell.is_late = True
    mailbox.wait(1)
    assert bell.ring_count == 0
    mailbox.take_all()
    mailbox.wait(2)
    assert bell.timeouts_s == [0.001, -1, 0.002]


def test_a_timer_in_the_far_future_is_waited_for_as_long_as_a_lock_can_wait() -> None:
    mailbox = Mailbox()
    bell = Bell(mailbox, mailbox.wake)
    mailbox.wait(2.0**63)
    assert bell.timeouts_s == [threading.TIMEOUT_MAX]


@pytest.mark.parametrize("has_mail", [False, True])
def test_after_forgetting_wake_ups_only_mail_ends_the_next_wait_at_once(has_mail: bool) -> None:
    mailbox = Mailbox()
    mailbox.wake()
    if has_mail:
        mailbox.put(lambda: None)
    mailbox.forget_wake_ups()
    hooked: list[None] = []
    mailbox.set_wake_hook(lambda: hooked.append(None))
    mailbox.wake()
    # Who is awake is not woken: whether it was shows in that.
    assert len(hooked) == (not has_mail)


def test_a_closed_mailbox_refuses_mail() -> None:
    mailbox = Mailbox()
    mailbox.close()
    assert not mailbox.put(lambda: None)


def test_the_wake_hook_runs_once_per_sleep() -> None:
    mailbox = Mailbox()
    hooks: list[str] = []
    mailbox.set_wake_hook(lambda: hooks.append("woken"))
    mailbox.wake()
    mailbox.wake()
    assert hooks == ["woken"]
    mailbox.take_all()
    mailbox.put(lambda: None)
    assert hooks == ["woken", "woken"]


def test_timers_fire_in_time_order_once_they_are_due() -> None:
    clock = ManualClock(1_000)
    timers = MailboxTimers(clock)
    fired: list[int] = []
    timers.schedule(1_020, fired.append)
    timers.schedule(1_010, fired.append)
    timers.fire_due()
    assert fired == []
    assert timers.delay_to_next_ms() == 10
    clock.advance_ms(20)
    timers.fire_due()
    assert fired == [1_010, 1_020]


def test_the_wait_for_a_timer_ends_when_it_is_due_and_not_a_millisecond_later() -> None:
    clock = ManualClock(1_000)
    timers = MailboxTimers(clock)
    fired: list[int] = []
    timers.schedule(1_001, fired.append)
    clock.advance_ms(0.75)
    assert timers.delay_to_next_ms() == 0.25
    # Rounded up, or the wait would end just before and begin anew.
    clock.advance_ms(0.2499995)
    assert timers.delay_to_next_ms() == 0.001
    clock.advance_ms(0.001)
    timers.fire_due()
    assert fired == [1_001]
    timers.schedule(1_000, fired.append)
    assert timers.delay_to_next_ms() == 0


def test_a_delay_of_parts_of_milliseconds_ends_at_the_nearest_millisecond() -> None:
    clock = ManualClock(1_000)
    timers = MailboxTimers(clock)
    assert timers.nearest_ms(5) == 1_005
    clock.advance_ms(0.75)
    assert [timers.nearest_ms(delay_ms) for delay_ms in (0.25, 1.5, 1.8)] == [1_001, 1_002, 1_003]


def test_a_timer_registered_by_a_due_timer_waits_for_the_next_round() -> None:
    clock = ManualClock(0)
    timers = MailboxTimers(clock)
    rounds: list[int] = []

    def again(time_ms: int) -> None:
        rounds.append(time_ms)
        timers.schedule(0, again)

    timers.schedule(0, again)
    timers.fire_due()
    assert rounds == [0]


def test_a_cancelled_timer_neither_fires_nor_keeps_the_task_awake() -> None:
    clock = ManualClock(0)
    timers = MailboxTimers(clock)
    timer = timers.schedule(5, lambda _: None)
    timer.cancel()
    assert timers.delay_to_next_ms() is None


def test_after_quiescing_no_timer_fires() -> None:
    clock = ManualClock(0)
    timers = MailboxTimers(clock)
    fired: list[int] = []
    timers.schedule(0, fired.append)
    timers.quiesce()
    timers.schedule(0, fired.append)
    timers.fire_due()
    assert fired == []
