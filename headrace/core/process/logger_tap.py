"""LoggerTap: writes records of Headrace's loggers in the driver to log files, without changing the program's output.

The driver is the user's own process. A handler on a logger sees only records that pass the logger's level, so levels
must be lowered for log files. To keep other outputs unchanged, existing handlers get a filter, and so do records that
propagate to the root logger. Levels that are set while the tap is open are obeyed as before.
"""

import logging
import threading
from collections.abc import Iterator
from typing import Final


class LoggerTap:
    """The tap of one logger and its children. `add` opens it, and the last `remove` closes it. Any thread."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._sinks: list[logging.Handler] = []
        self._shown: dict[str, int] = {}
        self._filtered: list[logging.Handler] = []
        self._own_level = logging.NOTSET
        self._onward: logging.Handler | None = None
        # Clusters of a process may start and end on different threads.
        self._lock: Final = threading.Lock()

    def add(self, sink: logging.Handler, level: int) -> None:
        """Send records at `level` or above to `sink`, and also those that the program shows."""
        with self._lock:
            if not self._sinks:
                self._open(level)
            self._sinks.append(sink)
            logging.getLogger(self._name).addHandler(sink)

    def remove(self, sink: logging.Handler) -> None:
        """Send nothing more to `sink`; no effect if it was not added."""
        with self._lock:
            if sink not in self._sinks:
                return
            self._sinks.remove(sink)
            logging.getLogger(self._name).removeHandler(sink)
            if not self._sinks:
                self._close()

    def shown_level(self, name: str) -> int:
        """Return the level from which records of a logger would be shown without the tap."""
        while name:
            logger = logging.root.manager.loggerDict.get(name)
            level = logger.level if isinstance(logger, logging.Logger) else logging.NOTSET
            if level not in (logging.NOTSET, self._own_level):
                return level
            if name in self._shown:
                return self._shown[name]
            name = name.rpartition(".")[0]
        return logging.root.getEffectiveLevel()

    def _open(self, level: int) -> None:
        top = logging.getLogger(self._name)
        # One lower than usual levels, so that a level set by the program while the tap is open can be recognised.
        self._own_level = level - 1
        for logger in self._loggers():
            if logger.level > level:
                self._shown[logger.name] = logger.level
                logger.setLevel(logging.NOTSET)
            for handler in logger.handlers:
                handler.addFilter(self._is_shown)
                self._filtered.append(handler)
        if top.getEffectiveLevel() > level:
            top.setLevel(self._own_level)
        if top.propagate:
            top.propagate = False
            self._onward = _Onward()
            self._onward.addFilter(self._is_shown)
            top.addHandler(self._onward)

    def _close(self) -> None:
        top = logging.getLogger(self._name)
        if self._onward is not None:
            top.removeHandler(self._onward)
            top.propagate, self._onward = True, None
        for handler in self._filtered:
            handler.removeFilter(self._is_shown)
        self._filtered.clear()
        if top.level == self._own_level:
            top.setLevel(logging.NOTSET)
        for name, level in self._shown.items():
            logger = logging.getLogger(name)
            if logger.level == logging.NOTSET:
                logger.setLevel(level)
        self._shown.clear()
        self._own_level = logging.NOTSET

    def _loggers(self) -> Iterator[logging.Logger]:
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if isinstance(logger, logging.Logger) and (
                name == self._name or name.startswith(f"{self._name}.")
            ):
                yield logger

    def _is_shown(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self.shown_level(record.name)


class _Onward(logging.Handler):
    """Passes records to the root logger, which shows them as if they had propagated by themselves."""

    def handle(self, record: logging.LogRecord) -> bool:
        is_taken = bool(self.filter(record))
        if is_taken:
            logging.root.callHandlers(record)
        return is_taken


HEADRACE_TAP: Final = LoggerTap("headrace")
"""The only tap of this process: clusters that run in it at the same time cannot be told apart in their logs."""
