"""JobNotices: notifies the user of restarts and failed checkpoints at once, whatever the log level.

A notice is one line. It is written by the logger of this module, which `headrace run` always shows and plain Python
shows unless logging is configured, and it is kept for later requests of clients. When many notices of one topic come
within a short time, the first few are shown at once, and of the others only the newest.
Runs on the JobMaster's main thread.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.core.clock import Cancellable, Clock
from headrace.core.error_text import on_one_line
from headrace.gateways.job_master import JobNotice

_LOG: Final = logging.getLogger(__name__)
_KEPT_MAX: Final = 100
_AT_ONCE_MAX: Final = 3
_PERIOD_MS: Final = 10_000.0


class JobNotices:
    """Notices of one JobMaster. `later` runs an action on the main thread after a number of ms."""

    def __init__(
        self, clock: Clock, later: Callable[[float, Callable[[], None]], Cancellable]
    ) -> None:
        self._clock: Final = clock
        self._later: Final = later
        self._topics: Final[dict[str, _Topic]] = {}
        self._shown: Final[deque[JobNotice]] = deque(maxlen=_KEPT_MAX)

    @property
    def shown(self) -> tuple[JobNotice, ...]:
        """Newest notices that were shown, oldest first."""
        return tuple(self._shown)

    def tell(self, topic: str, text: str) -> None:
        """Show one line now or, if many of the topic come, only the newest one some seconds later."""
        period = self._topics.setdefault(topic, _Topic())
        if period.shown_count < _AT_ONCE_MAX:
            period.shown_count += 1
            self._show(text)
        else:
            period.held.append(text)
            period.held_count += 1
        if period.timer is None:
            period.timer = self._later(_PERIOD_MS, lambda: self._period_over(period))

    def close(self) -> None:
        """Show the notices that are held back, because the job has ended."""
        for period in self._topics.values():
            self._tell_held(period)
            if period.timer is not None:
                period.timer.cancel()
                period.timer = None

    def _period_over(self, period: "_Topic") -> None:
        period.timer = None
        # One line per period, while more notices come than that.
        period.shown_count = _AT_ONCE_MAX if period.held_count else 0
        if self._tell_held(period):
            period.timer = self._later(_PERIOD_MS, lambda: self._period_over(period))

    def _tell_held(self, period: "_Topic") -> bool:
        if not period.held_count:
            return False
        before = period.held_count - 1
        self._show(period.held.pop() + (f" ({before} similar ones before it)" if before else ""))
        period.held_count = 0
        return True

    def _show(self, text: str) -> None:
        # Job names and error texts come from the program.
        text = on_one_line(text)
        self._shown.append(JobNotice(self._clock.now_ms(), text))
        _LOG.warning("%s", text)


class _Topic:
    """Notices of one topic in the current period: the number shown, and the newest one held back."""

    def __init__(self) -> None:
        self.shown_count = 0
        self.held_count = 0
        self.held: deque[str] = deque(maxlen=1)
        self.timer: Cancellable | None = None
