"""Settings with which a file sink places records and closes files: bucket assigners, rolling policies, file names.

Source: Flink BucketAssigner, DefaultRollingPolicy, OnCheckpointRollingPolicy, OutputFileConfig.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import ClassVar, Final
from zoneinfo import ZoneInfo

_JAVA_TO_STRFTIME: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "DDD": "%j",
}  # fmt: skip
_PATTERN_PART: Final = re.compile(r"'([^']*)'|([A-Za-z])\2*|.", re.DOTALL)


class BucketAssigner:
    """Chooses the sub-folder of a record; this base class chooses none."""

    def bucket_of(self, now_ms: int) -> str:
        """Return the folder, relative to the sink's, for a record that is written at `now_ms`."""
        return ""

    @staticmethod
    def base_path_bucket_assigner() -> "BucketAssigner":
        """Return an assigner that puts everything into the sink's own folder."""
        return BucketAssigner()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> "BucketAssigner":
        """Return an assigner with a folder per period of processing time, named by a Java date pattern."""
        return DateTimeBucketAssigner(format_str, timezone_id)


class DateTimeBucketAssigner(BucketAssigner):
    """Chooses a folder per period of processing time."""

    def __init__(self, format_str: str, timezone_id: str | None) -> None:
        self._strftime = strftime_of(format_str)
        self._timezone_id = timezone_id

    def bucket_of(self, now_ms: int) -> str:
        zone: tzinfo | None = None if self._timezone_id is None else ZoneInfo(self._timezone_id)
        instant = datetime.fromtimestamp(now_ms / 1000, UTC)
        return instant.astimezone(zone).strftime(self._strftime)


def strftime_of(java_pattern: str) -> str:
    """Translate a Java date pattern; ValueError names an unsupported letter."""
    parts: list[str] = []
    for match in _PATTERN_PART.finditer(java_pattern):
        text = match.group(0)
        if match.group(1) is not None:
            parts.append((match.group(1) or "'").replace("%", "%%"))
        elif match.group(2) is None:
            parts.append(text.replace("%", "%%"))
        elif text in _JAVA_TO_STRFTIME:
            parts.append(_JAVA_TO_STRFTIME[text])
        else:
            raise ValueError(f"'{text}' in the date pattern '{java_pattern}' is not supported")
    return "".join(parts)


class RollingPolicy:
    """Decides when a part file is closed and the next one begun."""

    def should_roll(self, size_bytes: int, age_ms: int, idle_ms: int) -> bool:
        """Return whether to close a file of that size, created `age_ms` ago and last written `idle_ms` ago."""
        raise NotImplementedError

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> "DefaultRollingPolicy":
        """Return a policy by size in bytes, age and inactivity in ms."""
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> "OnCheckpointRollingPolicy":
        """Return a policy that closes files only at checkpoints; without checkpoints, at the end of input."""
        return OnCheckpointRollingPolicy()


@dataclass(frozen=True)
class DefaultRollingPolicy(RollingPolicy):
    """Closes files by size, age and inactivity."""

    part_size_bytes: int
    rollover_interval_ms: int
    inactivity_interval_ms: int

    def should_roll(self, size_bytes: int, age_ms: int, idle_ms: int) -> bool:
        return (
            size_bytes > self.part_size_bytes
            or age_ms >= self.rollover_interval_ms
            or idle_ms >= self.inactivity_interval_ms
        )


@dataclass(frozen=True)
class OnCheckpointRollingPolicy(RollingPolicy):
    """Closes no files between checkpoints."""

    def should_roll(self, size_bytes: int, age_ms: int, idle_ms: int) -> bool:
        return False


class OutputFileConfig:
    """Naming of part files: `<prefix>-<writer>-<number><suffix>`."""

    # PyFlink programs find the builder in here.
    OutputFileConfigBuilder: ClassVar[type["FileConfigBuilder"]]

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        self._part_prefix = part_prefix
        self._part_suffix = part_suffix

    def get_part_prefix(self) -> str:
        return self._part_prefix

    def get_part_suffix(self) -> str:
        return self._part_suffix

    @staticmethod
    def builder() -> "FileConfigBuilder":
        """Return a builder with the prefix `part` and no suffix."""
        return FileConfigBuilder()


class FileConfigBuilder:
    """Builds an OutputFileConfig."""

    def __init__(self) -> None:
        self._part_prefix = "part"
        self._part_suffix = ""

    def with_part_prefix(self, prefix: str) -> "FileConfigBuilder":
        self._part_prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> "FileConfigBuilder":
        self._part_suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        return OutputFileConfig(self._part_prefix, self._part_suffix)


OutputFileConfig.OutputFileConfigBuilder = FileConfigBuilder
