"""ProcessLog: the log files of a process of a cluster, `.log` for log records and `.out` for printed output.

A record is a line of text or a JSON object; passwords of URIs are hidden in both. PRINT_PREFIX names the subtask that
printed a line, for displays of several subtasks.
"""

import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from headrace.core.config import Settings
from headrace.core.process.log_files import (
    LOG_FORMAT,
    LOG_LEVEL,
    LOG_MAX,
    LOG_MAX_SIZE,
    FolderInUse,
)
from headrace.core.process.rotating_file import RotatingFile
from headrace.core.redaction import DiscreetFormatter, shown_uri

_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
}
PRINT_PREFIX: Final = ContextVar("PRINT_PREFIX", default="")
"""Text before each line that the calling thread prints, if lines of several subtasks are shown together."""


def print_prefix(subtask_index: int, parallelism: int) -> str:
    """Return the prefix of a print sink, `2> ` for the second of several subtasks; empty for the only one."""
    return f"{subtask_index + 1}> " if parallelism > 1 else ""


class ProcessLog:
    """Two rotating files in `folder`, accessible to their owner alone. The creator attaches its `handler` to loggers.

    `level` is the lowest level of records of Headrace's own loggers.
    """

    def __init__(self, folder: Path, name: str, settings: Settings) -> None:
        size_max_bytes, kept_count = settings.get_option(LOG_MAX_SIZE), settings.get_option(LOG_MAX)
        self.folder: Final = folder
        self._use: Final = FolderInUse(folder)
        self.level: Final = _LEVELS[settings.get_option(LOG_LEVEL)]
        self._log: Final = RotatingFile(folder / f"{name}.log", size_max_bytes, kept_count)
        self._out: Final = RotatingFile(folder / f"{name}.out", size_max_bytes, kept_count)
        self.handler: Final[logging.Handler] = _FileHandler(self._log)
        self.handler.setFormatter(log_formatter(settings))

    def write_printed(self, lines: bytes) -> None:
        """Append to the `.out` file; callable from any thread; never raises."""
        self._out.write(lines)

    def close(self) -> None:
        """Close both files; idempotent."""
        self.handler.close()
        self._log.close()
        self._out.close()
        self._use.close()


class _FileHandler(logging.Handler):
    """Writes formatted records to a file. A record that cannot be formatted does not disturb the logging thread."""

    def __init__(self, file: RotatingFile) -> None:
        super().__init__()
        self._file: Final = file

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return
        self._file.write(line.encode(errors="replace"))


_LINE: Final = "%(asctime)s %(levelname)s [%(threadName)s] %(name)s: %(message)s"
_ENCODER: Final = msgspec.json.Encoder()


def log_formatter(settings: Settings) -> logging.Formatter:
    """Return the formatter that `headrace.log.format` selects."""
    if settings.get_option(LOG_FORMAT) == "json":
        return JsonFormatter()
    return DiscreetFormatter(_LINE, None)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line: an object with time, level, logger, thread, message and, if any, traceback.

    The thread of a task has the name of its subtask.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, str | int] = {
            "timestamp": time,
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName or "",
            "process": record.process or 0,
            "message": shown_uri(record.getMessage()),
        }
        if record.exc_info:
            fields["exception"] = shown_uri(self.formatException(record.exc_info))
        if record.stack_info:
            fields["stack"] = shown_uri(self.formatStack(record.stack_info))
        return _ENCODER.encode(fields).decode()
