"""LeaderReplacements: limits how often failed leaders are replaced within one process."""

from collections import deque
from datetime import timedelta
from typing import Final

from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings

REPLACEMENT_WINDOW: Final = ConfigOption(
    "headrace.resourcemanager.replacement-window",
    timedelta,
    timedelta(minutes=10),
    "Time within which failures of the ResourceManager, and those of the Dispatcher, are counted.",
)


class LeaderReplacements:
    """Counts replaced endpoints within a window, and decides whether another one may be replaced."""

    def __init__(self, option: ConfigOption[int], settings: Settings, clock: Clock) -> None:
        self._option: Final = option
        self._max: Final = settings.get_option(option)
        self._window_ms: Final = settings.duration_ms(REPLACEMENT_WINDOW)
        self._clock: Final = clock
        self._replaced_ms: Final[deque[float]] = deque()

    @property
    def are_left(self) -> bool:
        """Return whether another endpoint may be replaced."""
        oldest_ms = self._clock.monotonic_ms() - self._window_ms
        while self._replaced_ms and self._replaced_ms[0] <= oldest_ms:
            self._replaced_ms.popleft()
        return len(self._replaced_ms) < self._max

    def count(self) -> str:
        """Count a replacement, and return a description for the log."""
        self._replaced_ms.append(self._clock.monotonic_ms())
        return (
            f"no. {len(self._replaced_ms)} of at most {self._max} within {self._window_ms / 1000:g} s "
            f"('{self._option.key}')"
        )
