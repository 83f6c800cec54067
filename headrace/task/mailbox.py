"""Mailbox: queue of the mails that a task's only thread runs, with due timers, between its default actions.

Other threads only put mail or wake the task; only the mailbox thread touches the task's state.
Source: Flink MailboxProcessor, TaskMailbox, SystemProcessingTimeService.
"""

import heapq
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from headrace.core.clock import Clock

Mail = Callable[[], None]
_NS_PER_MS: Final = 1_000_000
_NS_PER_US: Final = 1_000


@dataclass(slots=True)
class MailboxTimer:
    """A callback due at `time_ms`."""

    time_ms: int
    callback: Callable[[int], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        """Prevent the callback from running. Mailbox thread only."""
        self.is_cancelled = True


class Mailbox:
    """First-in, first-out queue of mails with a sticky wake flag. `put` and `wake` may be called on any thread.

    The lock guards the queue and the flags together: a wake between "nothing to do" and "wait" must not be lost. The
    bell is a lock that is held, but for the moment between a wake-up and the end of the wait: a Condition, which serves
    any number of sleepers, makes a new lock for each wait.
    """

    def __init__(self) -> None:
        # Reentrant: garbage collection under the lock may free a resource that the task waits for.
        self._lock: Final = threading.RLock()
        self._bell: Final = threading.Lock()
        self._bell.acquire()
        self._is_asleep = False
        self._mails: deque[Mail] = deque()
        self.taken_count = 0
        self._is_awake = False
        self._is_closed = False
        self._wake_hook: Callable[[], None] | None = None
        self._interruption: BaseException | None = None
        self._interruption_traceback: TracebackType | None = None

    def interrupt(self, error: BaseException) -> None:
        """Let `check_interrupted` raise `error` from now on, and wake the task. Any thread; the first error is kept."""
        if self._interruption is None:
            self._interruption_traceback = error.__traceback__
            self._interruption = error
        self.wake()

    def check_interrupted(self) -> None:
        """Raise the error of `interrupt`, if any. This stops user code that emits forever."""
        if self._interruption is not None:
            # With its original traceback: it would grow with each raise, without end if user code keeps catching it.
            raise self._interruption.with_traceback(self._interruption_traceback)

    def put(self, mail: Mail) -> bool:
        """Append a mail; return False, without effect, once the mailbox is closed."""
        with self._lock:
            if self._is_closed:
                return False
            self._mails.append(mail)
            hook = self._wake_up()
        if hook is not None:
            hook()
        return True

    def wake(self) -> None:
        """Wake the task to try its default action again."""
        with self._lock:
            hook = self._wake_up()
        if hook is not None:
            hook()

    def _wake_up(self) -> Callable[[], None] | None:
        if self._is_awake:
            return None
        self._is_awake = True
        if self._is_asleep:
            self._is_asleep = False
            self._bell.release()
        return self._wake_hook

    def set_wake_hook(self, hook: Callable[[], None]) -> None:
        """Call `hook`, outside the lock, whenever a sleeping mailbox is woken. For cooperative runners."""
        self._wake_hook = hook

    def take_all(self) -> list[Mail]:
        """Remove and return all mails, in order, and forget earlier wake-ups."""
        with self._lock:
            self._is_awake = False
            mails = list(self._mails)
            self._mails.clear()
            self.taken_count += len(mails)
            return mails

    def forget_wake_ups(self) -> None:
        """Forget earlier wake-ups, because the task tries its default action next. Mailbox thread only.

        Mails and timers also wake the task while it is awake: each of them would otherwise cost an empty round.
        """
        # Read without the lock, because it is checked each round: later wake-ups must not be forgotten.
        if self._is_awake:
            with self._lock:
                self._is_awake = bool(self._mails)

    def wait(self, timeout_ms: float | None) -> None:
        """Block until there is mail or a wake-up, or `timeout_ms` (not negative) has passed.

        Only a task's own thread calls it, which handles no signals: it raises no exception, and after
        one the bell could be one ring ahead.
        """
        with self._lock:
            if self._is_awake:
                return
            self._is_asleep = True
        # A timer may be due later than a lock can wait: then the task checks again, in some centuries.
        timeout_s = -1 if timeout_ms is None else min(timeout_ms / 1000, threading.TIMEOUT_MAX)
        if self._bell.acquire(timeout=timeout_s):
            return
        with self._lock:
            if not self._is_asleep:
                # The bell rang just after the time-out: the next wait must not see it.
                self._bell.acquire()
            self._is_asleep = False

    def close(self) -> None:
        """Refuse further mail and drop queued mail."""
        with self._lock:
            self._is_closed = True
            self._mails.clear()

    @property
    def size(self) -> int:
        """Number of queued mails."""
        return len(self._mails)


class MailboxTimers:
    """Processing-time timers of one task. Mailbox thread only. Implements ProcessingTimeService."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # By time, then by registration; tuples are compared without calls of Python functions.
        self._heap: list[tuple[int, int, MailboxTimer]] = []
        self._sequence = 0
        self._is_quiesced = False

    def now_ms(self) -> int:
        """Current processing time, epoch ms."""
        return self._clock.now_ms()

    def nearest_ms(self, delay_ms: float) -> int:
        """Return the time nearest to the moment after `delay_ms`, epoch ms."""
        return (self._clock.now_ns() + round(delay_ms * _NS_PER_MS) + _NS_PER_MS // 2) // _NS_PER_MS

    def schedule(self, time_ms: int, callback: Callable[[int], None]) -> MailboxTimer:
        """Run `callback(time_ms)` once `now_ms() >= time_ms`; ignored after `quiesce`."""
        timer = MailboxTimer(time_ms, callback)
        if not self._is_quiesced:
            heapq.heappush(self._heap, (time_ms, self._sequence, timer))
        self._sequence += 1
        return timer

    def fire_due(self, begin: Callable[[], None] | None = None) -> None:
        """Run the callbacks that are due now; callbacks that these register for now run at the next call.

        `begin` is called before each of them.
        """
        if not self._heap:
            return
        now_ms = self._clock.now_ms()
        last_sequence = self._sequence
        heap = self._heap
        while heap and heap[0][0] <= now_ms and heap[0][1] < last_sequence:
            _, _, timer = heapq.heappop(heap)
            if not timer.is_cancelled:
                if begin is not None:
                    begin()
                timer.callback(timer.time_ms)

    def delay_to_next_ms(self) -> float | None:
        """Return the ms until the next timer is due (0 if it is now), or None without timers.

        Rounded up to microseconds: whole milliseconds would delay each tick of a source by half a millisecond.
        """
        while self._heap and self._heap[0][2].is_cancelled:
            heapq.heappop(self._heap)
        if not self._heap:
            return None
        delay_ns = self._heap[0][0] * _NS_PER_MS - self._clock.now_ns()
        return max(0, -(-delay_ns // _NS_PER_US)) / 1000

    def quiesce(self) -> None:
        """Drop all timers and accept no more, because the task or its input has ended."""
        self._is_quiesced = True
        self._heap.clear()
