"""Options: settings that are declared once, next to the code that reads them.

Values come from `-D key=value`, a program's Configuration or the default, in this order. Durations are written as `250
ms`, `10 s`, `5 min`, `1 h` or a bare number of milliseconds; sizes as `32kb`, `10mb`, `1g` or bytes; ports as a port, a
range or a list of both. Types, defaults and sizes are also written as text here, for lists of options and for errors.
"""

import difflib
import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, cast

from headrace.core.errors import ConfigurationError
from headrace.core.redaction import shown_settings

T = TypeVar("T")

_REGISTRY: dict[str, "ConfigOption[Any]"] = {}
_WITHDRAWN: Final[dict[str, str]] = {}
"""Keys of options that no longer exist, with the alternative."""


class SizeBytes(int):
    """A number of bytes; the type of options such as `pekko.framesize`."""


_DURATION_UNITS_MS: Final = {
    "": 1.0, "ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "milli": 1.0, "millis": 1.0, "millisecond": 1.0,
    "milliseconds": 1.0, "s": 1e3, "sec": 1e3, "secs": 1e3, "second": 1e3, "seconds": 1e3, "m": 6e4, "min": 6e4,
    "minute": 6e4, "minutes": 6e4, "h": 3.6e6, "hour": 3.6e6, "hours": 3.6e6, "d": 8.64e7, "day": 8.64e7,
    "days": 8.64e7,
}  # fmt: skip
_SIZE_UNITS: Final = {
    "": 1, "b": 1, "bytes": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30,
    "gb": 1 << 30, "t": 1 << 40, "tb": 1 << 40,
}  # fmt: skip
_QUANTITY: Final = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-zA-Zµ]*)\s*\Z")
_TYPE_NAMES: Final = {timedelta: "duration", SizeBytes: "size", str: "text", bool: "true or false"}
_SIZES: Final = ((1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb"))
_DURATIONS: Final = ((60_000, "min"), (1_000, "s"))
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")
_ZEROS: Final[dict[type, Any]] = {
    timedelta: timedelta(0), SizeBytes: SizeBytes(0), int: 0, float: 0.0,
}  # fmt: skip
PORT_MAX: Final = 65535


@dataclass(frozen=True, eq=False)
class ConfigOption(Generic[T]):
    """One setting: key, type of its value, default and a sentence for the generated table.

    Keys and defaults are Flink's where the meaning is the same. Two kinds of Flink's options have no effect here.
    `unobeyed` marks those that ported programs may set: its sentence is logged for a job that sets the option.
    `refused` marks those that request a missing feature: any value but the default is an error with this sentence.
    """

    key: str
    value_type: type[T]
    default: T
    doc: str
    deprecated_keys: tuple[str, ...] = ()
    unobeyed: str = ""
    refused: str = ""
    least: T | None = None
    """Smallest accepted value. None: zero for numbers, sizes and durations, or a default below zero."""
    most: T | None = None
    """Largest accepted value; None: no limit."""
    off: tuple[T, ...] = ()
    """Values below `least` that are also accepted, like the default: they switch the feature off."""
    choices: tuple[str, ...] = ()
    """Words that a text option accepts, in any case and with `-` for `_`; none: any text."""
    synonyms: tuple[str, ...] = ()
    """Other accepted words, which are not listed."""

    def __post_init__(self) -> None:
        for key in (self.key, *self.deprecated_keys):
            assert key not in _REGISTRY, f"option {key} is declared twice"
            _REGISTRY[key] = self

    def parse(self, raw: object) -> T:
        """Convert `raw` (text, or a value of the right type); ConfigurationError for an invalid value."""
        value: Any = _parse(self.key, self.value_type, raw)
        if self.refused and value != self.default:
            raise ConfigurationError(self.key, raw, self.refused)
        if self.choices:
            return cast(T, self._word(value))
        least = self._least()
        # Not `<`, which a number that is none passes.
        if least is not None and not value >= least and value not in (*self.off, self.default):
            others = "".join(f" or {default_text(one)}" for one in self.off)
            raise ConfigurationError(
                self.key, raw, f"it must be at least {default_text(least)}{others}"
            )
        most: Any = self.most
        if most is not None and value > most:
            raise ConfigurationError(self.key, raw, f"it must be at most {default_text(most)}")
        return cast(T, value)

    def _word(self, text: str) -> str:
        """Return the choice that `text` spells; the default, which need not be a choice, is returned unchanged."""
        for word in (*self.choices, *self.synonyms, str(self.default)):
            if _spelling(word) == _spelling(text):
                return word
        raise ConfigurationError(self.key, text, f"it must be one of {', '.join(self.choices)}")

    def _least(self) -> Any:
        """Return the bound that is set, or that of the type.

        None if the option has no effect or its type has no order.
        """
        if self.least is not None or self.unobeyed:
            return self.least
        zero = _ZEROS.get(self.value_type)
        return zero if zero is None or self.default is None else min(zero, cast(Any, self.default))


def check_settings(raw: Mapping[str, str], free_prefixes: tuple[str, ...]) -> None:
    """Raise ConfigurationError for a key that no option declares, or for an invalid value.

    Keys with `free_prefixes` are not checked. Only options of modules imported so far are known.
    """
    for key, value in raw.items():
        if key not in _REGISTRY and not key.startswith(free_prefixes):
            raise ConfigurationError(key, value, f"there is no such option{_suggestion(key)}")
    check_values(raw)


def check_values(raw: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an invalid value; keys that no option declares may have any value."""
    for key, value in raw.items():
        if key in _REGISTRY:
            _REGISTRY[key].parse(value)


def unknown_settings(raw: Mapping[str, str], free_prefixes: tuple[str, ...]) -> list[str]:
    """Return a sentence for each key that no option declares, with the keys that may have been meant."""
    return [
        f"setting '{key}' is ignored: there is no such option{_suggestion(key)}"
        for key in raw
        if key not in _REGISTRY and not key.startswith(free_prefixes)
    ]


def unobeyed_settings(raw: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key whose option has no effect."""
    return [
        f"setting '{key}' has no effect: {_REGISTRY[key].unobeyed}"
        for key in raw
        if key in _REGISTRY and _REGISTRY[key].unobeyed
    ]


def withdraw_options(instead: Mapping[str, str]) -> None:
    """Declare keys of options that no longer exist, or exist only in Flink, with the alternative for each."""
    _WITHDRAWN.update(instead)


def _suggestion(key: str) -> str:
    if key in _WITHDRAWN:
        return f"; {_WITHDRAWN[key]}"
    for one, option in _REGISTRY.items():
        feature = one.removesuffix("enabled")
        if option.refused and feature != one and key.startswith(feature):
            return f"; {option.refused}"
    known = sorted(one for one, option in _REGISTRY.items() if not option.refused)
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.7)
    # `slots` for `headrace.spark.slots`: a part of a key is also a likely mistake.
    near += [one for one in known if one.endswith(f".{key}") and one not in near]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


def declared_options() -> list[ConfigOption[Any]]:
    """Return every option declared by the modules imported so far, ordered by key."""
    return sorted(set(_REGISTRY.values()), key=lambda option: option.key)


class Settings(Mapping[str, str]):
    """An immutable set of raw settings, read through options."""

    def __init__(self, raw: Mapping[str, str] | None = None) -> None:
        self._raw: Final = dict(raw or {})

    def get_option(self, option: ConfigOption[T]) -> T:
        """Return the option's value in these settings, or its default."""
        for key in (option.key, *option.deprecated_keys):
            if key in self._raw:
                return option.parse(self._raw[key])
        return option.default

    def duration_ms(self, option: ConfigOption[timedelta]) -> float:
        """Return a duration option's value in these settings, or its default, in milliseconds."""
        return self.get_option(option).total_seconds() * 1000

    def is_set(self, option: ConfigOption[Any]) -> bool:
        """Return whether the option was set explicitly."""
        return any(key in self._raw for key in (option.key, *option.deprecated_keys))

    def has_value_of(self, key: str) -> bool:
        """Return whether the option of this key was set explicitly, possibly under a deprecated key."""
        option = _REGISTRY.get(key)
        return key in self._raw if option is None else self.is_set(option)

    def with_values(self, changes: Mapping[str, str]) -> "Settings":
        """Return a copy in which `changes` override these settings."""
        return Settings({**self._raw, **changes})

    def to_dict(self) -> dict[str, str]:
        """Return a copy of the raw settings."""
        return dict(self._raw)

    def __getitem__(self, key: str) -> str:
        return self._raw[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"Settings({shown_settings(self._raw)!r})"


def parse_duration_ms(key: str, raw: object) -> float:
    """Parse a duration into milliseconds; ConfigurationError names `key`."""
    if isinstance(raw, timedelta):
        return raw.total_seconds() * 1000
    return _quantity(key, str(raw), _DURATION_UNITS_MS, "a duration such as '250 ms' or '10 s'")


def _quantity(key: str, text: str, units: Mapping[str, float], wanted: str) -> float:
    match = _QUANTITY.match(text)
    if match is None or match.group(2).lower() not in units:
        raise ConfigurationError(key, text, f"this is not {wanted}")
    return float(match.group(1)) * units[match.group(2).lower()]


def _spelling(word: str) -> str:
    """Normalise a word, so that all its spellings become equal."""
    return word.strip().upper().replace("-", "_")


def _parse(key: str, value_type: type[Any], raw: object) -> object:
    try:
        if value_type is timedelta:
            return timedelta(milliseconds=parse_duration_ms(key, raw))
        if value_type is SizeBytes:
            wanted = "a size such as '32kb' or '10mb'"
            return SizeBytes(_quantity(key, str(raw), _SIZE_UNITS, wanted))
    except OverflowError as error:
        raise ConfigurationError(key, raw, "this is too large") from error
    if value_type is bool:
        text = str(raw).strip().lower()
        if text not in ("true", "false"):
            raise ConfigurationError(key, raw, "it must be true or false")
        return text == "true"
    try:
        return value_type(raw)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(key, raw, f"this is not of type {value_type.__name__}") from error


def type_text(option: ConfigOption[Any]) -> str:
    """Name the type of an option's values."""
    return _TYPE_NAMES.get(option.value_type, option.value_type.__name__)


def default_text(value: object) -> str:
    """Write a default as a user would write it in `-D key=value`."""
    match value:
        case None:
            return "(none)"
        case bool():
            return str(value).lower()
        case enum.Enum():
            return value.name
        case timedelta():
            return _with_unit(value // timedelta(milliseconds=1), _DURATIONS, "ms")
        case SizeBytes():
            return _with_unit(value, _SIZES, "bytes")
        case _:
            return str(value) or "(empty)"


def _with_unit(value: int, units: tuple[tuple[int, str], ...], smallest: str) -> str:
    for factor, unit in units:
        if value and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} {smallest}"


def bytes_text(size_bytes: int) -> str:
    """Format a number of bytes in the unit that people would choose."""
    value, unit = float(size_bytes), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def parse_ports(key: str, text: str) -> Iterator[int]:
    """Yield the ports of `6123`, `50100-50200` or `6123,50100-50200`; ConfigurationError names `key`."""
    ranges: list[range] = []
    for part in text.split(","):
        first, separator, last = part.strip().partition("-")
        try:
            ranges.append(range(int(first), int(last if separator else first) + 1))
        except ValueError:
            raise ConfigurationError(
                key, text, "it must be a port, a range or a list of both"
            ) from None
        if not ranges[-1] or ranges[-1][0] < 0 or ranges[-1][-1] > PORT_MAX:
            raise ConfigurationError(key, text, "ports must be between 0 and 65535")
    return (port for ports in ranges for port in ports)
