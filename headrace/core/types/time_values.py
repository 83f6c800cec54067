"""Amounts and points of time that user programs write: Time, Duration and Instant."""

from datetime import timedelta
from typing import Final

from headrace.core.errors import ProgramError

_NANOS_PER_MILLI: Final = 1_000_000
_NANOS_PER_SECOND: Final = 1_000_000_000


class Time:
    """A number of milliseconds, for sizes of windows, gaps of sessions and time to live of state."""

    __slots__ = ("_milliseconds",)

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def to_milliseconds(self) -> int:
        return self._milliseconds

    @staticmethod
    def milliseconds(milliseconds: int) -> "Time":
        return Time(milliseconds)

    @staticmethod
    def seconds(seconds: int) -> "Time":
        return Time(seconds * 1_000)

    @staticmethod
    def minutes(minutes: int) -> "Time":
        return Time(minutes * 60_000)

    @staticmethod
    def hours(hours: int) -> "Time":
        return Time(hours * 3_600_000)

    @staticmethod
    def days(days: int) -> "Time":
        return Time(days * 86_400_000)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self._milliseconds == other._milliseconds

    def __hash__(self) -> int:
        return hash((Time, self._milliseconds))

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"

    def __repr__(self) -> str:
        return f"Time({self._milliseconds})"


class Duration:
    """A length of time with nanoseconds, for bounds of watermarks, timeouts and intervals."""

    __slots__ = ("_nanos",)

    def __init__(self, nanos: int) -> None:
        self._nanos = nanos

    @staticmethod
    def of_days(days: int) -> "Duration":
        return Duration(days * 86_400 * _NANOS_PER_SECOND)

    @staticmethod
    def of_hours(hours: int) -> "Duration":
        return Duration(hours * 3_600 * _NANOS_PER_SECOND)

    @staticmethod
    def of_minutes(minutes: int) -> "Duration":
        return Duration(minutes * 60 * _NANOS_PER_SECOND)

    @staticmethod
    def of_seconds(seconds: int) -> "Duration":
        return Duration(seconds * _NANOS_PER_SECOND)

    @staticmethod
    def of_millis(millis: int) -> "Duration":
        return Duration(millis * _NANOS_PER_MILLI)

    @staticmethod
    def of_nanos(nanos: int) -> "Duration":
        return Duration(nanos)

    @staticmethod
    def of_timedelta(delta: timedelta) -> "Duration":
        """Convert a timedelta exactly."""
        return Duration(delta // timedelta(microseconds=1) * 1_000)

    def to_millis(self) -> int:
        """Return whole milliseconds, rounded down."""
        return self._nanos // _NANOS_PER_MILLI

    def to_nanos(self) -> int:
        return self._nanos

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self._nanos == other._nanos

    def __hash__(self) -> int:
        return hash((Duration, self._nanos))

    def __repr__(self) -> str:
        if self._nanos % _NANOS_PER_MILLI == 0:
            return f"Duration({self._nanos // _NANOS_PER_MILLI} ms)"
        return f"Duration({self._nanos} ns)"


class Instant:
    """A point in time: `seconds` since 1970-01-01T00:00:00Z and `nanos` in [0, 10^9)."""

    __slots__ = ("nanos", "seconds")

    def __init__(self, seconds: int, nanos: int) -> None:
        self.seconds = seconds
        self.nanos = nanos

    def to_epoch_milli(self) -> int:
        """Return whole milliseconds since the epoch, rounded down."""
        return self.seconds * 1_000 + self.nanos // _NANOS_PER_MILLI

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> "Instant":
        seconds, millis = divmod(epoch_milli, 1_000)
        return Instant(seconds, millis * _NANOS_PER_MILLI)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Instant)
            and self.seconds == other.seconds
            and self.nanos == other.nanos
        )

    def __hash__(self) -> int:
        return hash((self.seconds, self.nanos))

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"


def to_millis(amount: Time | Duration | timedelta | int) -> int:
    """Return the milliseconds of any amount of time; a bare int is already in milliseconds."""
    match amount:
        case Time():
            return amount.to_milliseconds()
        case Duration():
            return amount.to_millis()
        case timedelta():
            return amount // timedelta(milliseconds=1)
        case int():
            return amount
        case _:
            raise ProgramError(
                f"an amount of time must be a Time, a Duration, a timedelta or a number of milliseconds, not {amount!r}"
            )
