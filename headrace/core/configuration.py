"""Configuration: the string-keyed settings of user programs, as in PyFlink.

The runtime reads its options from `headrace.core.config.Settings`; `Settings(configuration.to_dict())` converts to it.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from headrace.core.errors import ConfigurationError
from headrace.core.redaction import shown_settings

T = TypeVar("T")

ConfigValue = str | int | float | bool | bytearray

_QUOTES: Final = ("'", '"')


class Configuration:
    """Settings by key. Setters return the object; getters convert, or return the default for an unknown key.

    Example:
        >>> config = Configuration().set_integer("parallelism.default", 4)
        >>> config.get_string("parallelism.default", "1")
        '4'
    """

    def __init__(self, other: "Configuration | None" = None) -> None:
        self._values: dict[str, ConfigValue] = {} if other is None else deepcopy(other._values)

    @staticmethod
    def from_dict(map: Mapping[str, str]) -> "Configuration":
        """Return a configuration of these strings."""
        configuration = Configuration()
        configuration._values.update(map)
        return configuration

    def get_string(self, key: str, default_value: str) -> str:
        return self._get(key, default_value, _text_of)

    def set_string(self, key: str, value: str) -> "Configuration":
        return self._set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        return self._get(key, default_value, _integer_of)

    def set_integer(self, key: str, value: int) -> "Configuration":
        return self._set(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        return self._get(key, default_value, _boolean_of)

    def set_boolean(self, key: str, value: bool) -> "Configuration":
        return self._set(key, value)

    def get_float(self, key: str, default_value: float) -> float:
        return self._get(key, default_value, float)

    def set_float(self, key: str, value: float) -> "Configuration":
        return self._set(key, value)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        return self._get(key, default_value, _bytes_of)

    def set_bytearray(self, key: str, value: bytearray) -> "Configuration":
        return self._set(key, value)

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Return the items of `[a, b]`, of lines that begin with `- `, or of the old form `a;b`."""
        text = "" if value is None else value.strip()
        if not text:
            return []
        if text.startswith("[") and text.endswith("]"):
            items = _split_outside_quotes(text[1:-1], ",")
        elif text.startswith("- "):
            items = [line.strip().removeprefix("- ") for line in text.splitlines()]
        else:
            items = _split_outside_quotes(text, ";")
        return [_unquoted(item.strip()) for item in items if item.strip()]

    def key_set(self) -> set[str]:
        return set(self._values)

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Put all values, with their original types, into a dict."""
        target_dict.update(deepcopy(self._values))

    def add_all(self, other: "Configuration", prefix: str | None = None) -> "Configuration":
        """Add all values of `other`, with `prefix` before their keys."""
        for key, value in deepcopy(other._values).items():
            self._values[(prefix or "") + key] = value
        return self

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def to_dict(self) -> dict[str, str]:
        """Return all values as strings, such as `true` and `1.2`."""
        return {key: _text_of(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Remove a key; return True if it was there."""
        return self._values.pop(key, None) is not None

    def _set(self, key: str, value: ConfigValue) -> "Configuration":
        self._values[key] = value
        return self

    def _get(self, key: str, default_value: T, convert: Callable[[Any], T]) -> T:
        if key not in self._values:
            return default_value
        value = self._values[key]
        try:
            return convert(value)
        except (TypeError, ValueError):
            wanted = type(default_value).__name__
            raise ConfigurationError(key, value, f"this is not of type {wanted}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        shown = shown_settings(self.to_dict())
        return "{" + ", ".join(f"{key}={value}" for key, value in shown.items()) + "}"

    def __repr__(self) -> str:
        return f"Configuration({self})"


def _text_of(value: ConfigValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytearray):
        return value.decode("latin-1")
    return str(value)


def _integer_of(value: ConfigValue) -> int:
    return value if type(value) is int else int(_text_of(value))


def _boolean_of(value: ConfigValue) -> bool:
    text = _text_of(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _bytes_of(value: ConfigValue) -> bytearray:
    if not isinstance(value, bytearray):
        raise TypeError(value)
    return value


def _split_outside_quotes(text: str, separator: str) -> list[str]:
    items, quote = [""], ""
    for character in text:
        if character == separator and not quote:
            items.append("")
            continue
        if character == quote:
            quote = ""
        elif character in _QUOTES and not quote:
            quote = character
        items[-1] += character
    return items


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in _QUOTES:
        return text[1:-1].replace(text[0] * 2, text[0])
    return text


@dataclass(frozen=True)
class UserConfigOption(Generic[T]):
    """A key with the type and default of its value, declared by a program; PyFlink's `ConfigOption`."""

    key: str
    value_type: type[Any]
    default: T | None


class ConfigOptions:
    """Starts the declaration of an option: `ConfigOptions.key("x").int_type().default_value(5)`."""

    # PyFlink programs find the steps in here.
    OptionBuilder: ClassVar[type["ConfigOptions"]]
    TypedConfigOptionBuilder: ClassVar[type[Any]]

    def __init__(self, key: str) -> None:
        self._key = key

    @staticmethod
    def key(key: str) -> "ConfigOptions":
        return ConfigOptions(key)

    def boolean_type(self) -> "TypedConfigOptionBuilder[bool]":
        return TypedConfigOptionBuilder(self._key, bool)

    def int_type(self) -> "TypedConfigOptionBuilder[int]":
        return TypedConfigOptionBuilder(self._key, int)

    def long_type(self) -> "TypedConfigOptionBuilder[int]":
        return TypedConfigOptionBuilder(self._key, int)

    def float_type(self) -> "TypedConfigOptionBuilder[float]":
        return TypedConfigOptionBuilder(self._key, float)

    def double_type(self) -> "TypedConfigOptionBuilder[float]":
        return TypedConfigOptionBuilder(self._key, float)

    def string_type(self) -> "TypedConfigOptionBuilder[str]":
        return TypedConfigOptionBuilder(self._key, str)


class TypedConfigOptionBuilder(Generic[T]):
    """The second step of a declaration: the default."""

    def __init__(self, key: str, value_type: type[T]) -> None:
        self._key = key
        self._value_type = value_type

    def default_value(self, value: T) -> UserConfigOption[T]:
        return UserConfigOption(self._key, self._value_type, value)

    def no_default_value(self) -> UserConfigOption[T]:
        return UserConfigOption(self._key, self._value_type, None)


ConfigOptions.OptionBuilder = ConfigOptions
ConfigOptions.TypedConfigOptionBuilder = TypedConfigOptionBuilder
