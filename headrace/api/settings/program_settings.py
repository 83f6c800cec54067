"""ProgramSettings: the settings of one environment while a program is being written.

They are the only mutable settings: ExecutionConfig, CheckpointConfig and the environment are views of them. The command
line (`-D`) overrides a Configuration; a setter called in the program overrides both.
"""

import sys
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from headrace.core.config import ConfigOption, Settings, check_values
from headrace.core.errors import ConfigurationError, ProgramError
from headrace.core.key_groups import MAX_PARALLELISM_LIMIT
from headrace.graph.pipeline_options import PYTHON_FILES

T = TypeVar("T")


class ProgramSettings:
    """Raw settings that are read and written through options; ConfigurationError for invalid values."""

    def __init__(
        self,
        program: Mapping[str, str] | None = None,
        command_line: Mapping[str, str] | None = None,
    ) -> None:
        check_values(program or {})
        self._command_line = dict(command_line or {})
        self._raw: dict[str, str] = {**(program or {}), **self._command_line}

    def get(self, option: ConfigOption[T]) -> T:
        """Return the value that was set, or the default."""
        return self.to_settings().get_option(option)

    def is_set(self, option: ConfigOption[Any]) -> bool:
        """Return whether the option was set explicitly."""
        return self.to_settings().is_set(option)

    def set(self, option: ConfigOption[T], value: T) -> None:
        """Set a value from program code in place of all spellings of the key.

        ConfigurationError for an invalid value.
        """
        option.parse(value)
        self.unset(option)
        self._raw[option.key] = setting_text(value)

    def get_millis(self, option: ConfigOption[timedelta]) -> int:
        """Return the duration of an option, or its default, in milliseconds."""
        return self.get(option) // timedelta(milliseconds=1)

    def set_millis(self, option: ConfigOption[timedelta], millis: int, least: int = 0) -> None:
        """Set a duration from program code; ValueError below `least`."""
        if millis < least:
            raise ValueError(f"{option.key} must be at least {least} ms, not {millis}")
        self.set(option, timedelta(milliseconds=millis))

    def unset(self, option: ConfigOption[Any]) -> None:
        """Reset an option to its default."""
        for key in (option.key, *option.deprecated_keys):
            self._raw.pop(key, None)

    def merge(self, values: Mapping[str, str]) -> None:
        """Add the settings of a Configuration, below the command line's; ConfigurationError for invalid values."""
        check_values(values)
        self._raw.update({k: v for k, v in values.items() if k not in self._command_line})

    def set_raw(self, key: str, value: str) -> None:
        """Set a key that no option declares."""
        self._raw[key] = value

    def remove_prefix(self, prefix: str) -> None:
        """Remove every key that begins with `prefix`."""
        for key in [key for key in self._raw if key.startswith(prefix)]:
            del self._raw[key]

    def to_settings(self) -> Settings:
        """Return the current settings as an immutable object."""
        return Settings(self._raw)


def check_max_parallelism(max_parallelism: int) -> int:
    """Return a number of key groups; ValueError unless it is within 1..32768."""
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise ValueError(
            f"max parallelism must be within 1..{MAX_PARALLELISM_LIMIT}, not {max_parallelism}"
        )
    return max_parallelism


def check_buffer_timeout(timeout_millis: int) -> int:
    """Return a buffer timeout in milliseconds; ValueError below -1."""
    if timeout_millis < -1:
        raise ValueError(
            f"a buffer timeout must be -1, 0 or more milliseconds, not {timeout_millis}"
        )
    return timeout_millis


def setting_text(value: object) -> str:
    """Write a value in the form of settings: `true`, `250 ms`, the name of an enum's member."""
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return f"{value // timedelta(milliseconds=1)} ms"
        case Enum():
            return value.name
        case _:
            return str(value)


def configuration_values(configuration: object) -> dict[str, str]:
    """Return the settings of a Configuration or a mapping; ConfigurationError for anything else."""
    to_dict = getattr(configuration, "to_dict", None)
    if isinstance(configuration, Mapping):
        return {str(key): setting_text(value) for key, value in configuration.items()}
    if callable(to_dict):
        return configuration_values(to_dict())
    raise ConfigurationError(
        "configuration", configuration, "this is neither a Configuration nor a mapping"
    )


def add_python_file(settings: ProgramSettings, file_path: str) -> None:
    """Put a module, a package folder or an archive on the import path of this process and of the workers."""
    path = Path(file_path)
    if not path.exists():
        raise ProgramError(f"the Python file '{file_path}' does not exist")
    _append(settings, PYTHON_FILES, str(path.resolve()))
    # A module is found in its folder; a folder or an archive is itself an entry of the path.
    entry = str(path.resolve().parent if path.suffix == ".py" else path.resolve())
    if entry not in sys.path:
        sys.path.insert(0, entry)


def _append(settings: ProgramSettings, option: ConfigOption[str], value: str) -> None:
    present = settings.get(option)
    settings.set(option, f"{present},{value}" if present else value)
