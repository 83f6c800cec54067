"""Noise of the driver's JVM: what it writes to its standard error, and py4j's tracebacks when it is gone.

Standard error is passed on, but for one line, and remembered while Spark starts.

Spark's launcher asks every JVM for an incubating module (`--add-modules=jdk.incubator.vector`, for its linear algebra),
and Java warns of it with no way to say that it is known. Leaving the module out would change what Spark does.
"""

import contextlib
import logging
import os
import re
import threading
from collections import deque
from typing import BinaryIO, Final

from headrace.core.threads import start_thread

INCUBATOR_WARNING: Final = b"WARNING: Using incubator modules: jdk.incubator.vector"
_STANDARD_ERROR: Final = 2
_REMEMBERED_LINE_COUNT: Final = 200
_LAST_WORDS_TIMEOUT_S: Final = 2.0
_LOG: Final = logging.getLogger(__name__)
_CAUSE: Final = re.compile(r"(?:Exception in thread \"[^\"]*\" |Error: |Caused by: )(?P<cause>.+)")


def silence_py4j() -> None:
    """Have py4j's reports of a lost connection logged by us, at DEBUG. Idempotent.

    py4j writes a traceback of each call that was under way to the root logger, and thereby to standard error, before
    the call fails; the caller then says in a line that the JVM is gone. At INFO it tells of every connection that it
    closes, among what the program prints where that logs to standard output: only a level of the user's own shows it.
    """
    root, own = logging.getLogger(), logging.getLogger("py4j")
    if _is_for_others not in root.filters:
        root.addFilter(_is_for_others)
    if own.level == logging.NOTSET:
        own.setLevel(logging.WARNING)


def _is_for_others(record: logging.LogRecord) -> bool:
    if f"{os.sep}py4j{os.sep}" not in record.pathname:
        return True
    _LOG.debug("py4j: %s", record.getMessage(), exc_info=record.exc_info)
    return False


class JvmErrors:
    """A context manager: a JVM that is started inside writes to a pipe, as long as it lives.

    A thread passes lines on to where standard error led before; it ends with the last writer.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_REMEMBERED_LINE_COUNT)
        self._before = -1
        self._ended = threading.Event()

    def __enter__(self) -> "JvmErrors":
        try:
            self._before = os.dup(_STANDARD_ERROR)
        except OSError:
            # Standard error is closed: there is nothing to pass on.
            return self
        reading, writing = os.pipe()
        os.dup2(writing, _STANDARD_ERROR)
        os.close(writing)
        source, target = os.fdopen(reading, "rb"), os.fdopen(os.dup(self._before), "wb", 0)
        start_thread("headrace-jvm-errors", lambda: self._relay(source, target))
        return self

    def __exit__(self, *_: object) -> None:
        if self._before >= 0:
            os.dup2(self._before, _STANDARD_ERROR)
            os.close(self._before)

    def cause(self) -> str | None:
        """Return what the JVM said of its end, or None where it said nothing that looks like it; once it has ended."""
        self._ended.wait(_LAST_WORDS_TIMEOUT_S)
        for line in list(self._lines):
            found = _CAUSE.match(line)
            if found is not None and found.group("cause").startswith("Could not create the Java"):
                # Java has said why on the line before.
                return self._lines[0]
            if found is not None:
                return found.group("cause")
        return None

    def _relay(self, source: BinaryIO, target: BinaryIO) -> None:
        with source, target:
            for line in source:
                if line.strip() == INCUBATOR_WARNING:
                    continue
                self._lines.append(line.decode(errors="replace").rstrip())
                # Where nobody reads any more, the JVM must not notice.
                with contextlib.suppress(OSError):
                    target.write(line)
        self._ended.set()
