"""LoggerTap: log files get the records of the driver's loggers, and everybody else sees what they do without a tap."""

import logging
from collections.abc import Iterator

import pytest

from headrace.core.process.logger_tap import LoggerTap


class Noted(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())


@pytest.fixture
def top() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tapped")
    yield logger
    for each in (logger, logging.getLogger("tapped.loud"), logging.getLogger("tapped.quiet")):
        each.setLevel(logging.NOTSET)
        each.propagate = True
        each.handlers.clear()


@pytest.fixture
def root() -> Iterator[Noted]:
    noted = Noted()
    logging.root.addHandler(noted)
    level = logging.root.level
    logging.root.setLevel(logging.WARNING)
    yield noted
    logging.root.setLevel(level)
    logging.root.removeHandler(noted)


def log_all(name: str) -> None:
    logger = logging.getLogger(name)
    logger.debug("debug")
    logger.info("info")
    logger.warning("warning")


def test_a_sink_gets_more_than_the_program_shows(top: logging.Logger, root: Noted) -> None:
    tap, sink = LoggerTap("tapped"), Noted()
    tap.add(sink, logging.INFO)
    log_all("tapped.part")
    tap.remove(sink)
    assert sink.told == ["info", "warning"]
    assert root.told == ["warning"]


def test_nothing_is_left_of_a_tap_that_was_removed(top: logging.Logger, root: Noted) -> None:
    shown = Noted()
    top.addHandler(shown)
    top.setLevel(logging.ERROR)
    logging.getLogger("tapped.quiet").setLevel(logging.CRITICAL)
    before = (list(top.handlers), list(shown.filters), top.level, top.propagate)
    tap, sink = LoggerTap("tapped"), Noted()
    tap.add(sink, logging.INFO)
    tap.remove(sink)
    tap.remove(sink)
    assert (list(top.handlers), list(shown.filters), top.level, top.propagate) == before
    assert logging.getLogger("tapped.quiet").level == logging.CRITICAL
    log_all("tapped.part")
    assert (sink.told, shown.told, root.told) == ([], [], [])


def test_levels_of_single_loggers_hold_for_what_is_shown_alone(
    top: logging.Logger, root: Noted
) -> None:
    shown = Noted()
    top.addHandler(shown)
    top.setLevel(logging.ERROR)
    top.propagate = False
    logging.getLogger("tapped.loud").setLevel(logging.DEBUG)
    logging.getLogger("tapped.quiet").setLevel(logging.WARNING)
    tap, sink = LoggerTap("tapped"), Noted()
    tap.add(sink, logging.INFO)
    for name in ("tapped.loud.part", "tapped.quiet.part", "tapped.part"):
        log_all(name)
    tap.remove(sink)
    assert shown.told == ["debug", "info", "warning", "warning"]
    assert sink.told == ["debug", "info", "warning", "info", "warning", "info", "warning"]
    assert root.told == []


def test_a_level_that_is_set_while_the_tap_is_open_is_obeyed(
    top: logging.Logger, root: Noted
) -> None:
    tap, sink = LoggerTap("tapped"), Noted()
    tap.add(sink, logging.INFO)
    top.setLevel(logging.INFO)
    log_all("tapped.part")
    assert root.told == ["info", "warning"]
    top.setLevel(logging.CRITICAL)
    log_all("tapped.part")
    tap.remove(sink)
    assert root.told == ["info", "warning"]
    assert top.level == logging.CRITICAL


def test_a_root_level_that_is_set_while_the_tap_is_open_is_obeyed(
    top: logging.Logger, root: Noted
) -> None:
    tap, sink = LoggerTap("tapped"), Noted()
    tap.add(sink, logging.INFO)
    logging.root.setLevel(logging.INFO)
    log_all("tapped.part")
    tap.remove(sink)
    assert root.told == ["info", "warning"]


def test_a_program_without_any_handler_still_sees_warnings(
    top: logging.Logger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    tap, sink = LoggerTap("tapped"), Noted()
    tap.add(sink, logging.INFO)
    log_all("tapped.part")
    tap.remove(sink)
    assert capsys.readouterr().err == "warning\n"


def test_each_cluster_has_a_sink_and_the_last_one_closes_the_tap(
    top: logging.Logger, root: Noted
) -> None:
    tap, one, other = LoggerTap("tapped"), Noted(), Noted()
    tap.add(one, logging.INFO)
    tap.add(other, logging.INFO)
    log_all("tapped.part")
    tap.remove(one)
    log_all("tapped.part")
    tap.remove(other)
    log_all("tapped.part")
    assert one.told == ["info", "warning"]
    assert other.told == ["info", "warning"] * 2
    assert root.told == ["warning"] * 3
    assert top.level == logging.NOTSET


def test_the_level_that_is_shown_is_that_without_the_tap(top: logging.Logger, root: Noted) -> None:
    tap, sink = LoggerTap("tapped"), Noted()
    assert tap.shown_level("tapped") == logging.WARNING
    tap.add(sink, logging.INFO)
    assert tap.shown_level("tapped") == logging.WARNING
    assert top.getEffectiveLevel() < logging.INFO
    tap.remove(sink)
