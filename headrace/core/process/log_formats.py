"""Formats of log files: a line of text or a JSON object for each record; passwords of URIs are hidden in both."""

import logging
from datetime import UTC, datetime
from typing import Final

import msgspec

from headrace.core.config import Settings
from headrace.core.process.log_options import LOG_FORMAT
from headrace.core.redaction import DiscreetFormatter, shown_uri

_LINE: Final = "%(asctime)s %(levelname)s [%(threadName)s] %(name)s: %(message)s"
_ENCODER: Final = msgspec.json.Encoder()


def log_formatter(settings: Settings) -> logging.Formatter:
    """Return the formatter that `headrace.log.format` asks for."""
    if settings.get_option(LOG_FORMAT) == "json":
        return JsonFormatter()
    return DiscreetFormatter(_LINE, None)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line: an object with time, level, logger, thread, message and, if any, traceback.

    The thread of a task is named as its subtask.
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
