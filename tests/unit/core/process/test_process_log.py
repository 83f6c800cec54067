"""Lines of log files, as text and as JSON, and what is printed."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.process.process_log import ProcessLog

LOGGER = logging.getLogger("test_of_process_logs")


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.propagate = False
    yield
    LOGGER.handlers.clear()
    LOGGER.propagate = True
    LOGGER.setLevel(logging.NOTSET)


def log_to(folder: Path, **settings: str) -> ProcessLog:
    log = ProcessLog(folder, "taskmanager-1", Settings(settings))
    LOGGER.addHandler(log.handler)
    return log


def test_a_line_has_date_level_thread_logger_and_message(tmp_path: Path) -> None:
    log = log_to(tmp_path)
    LOGGER.warning("water is %s", "high")
    log.close()
    line = (tmp_path / "taskmanager-1.log").read_text()
    assert line[:4].isdigit() and line[4] == "-"
    assert line.endswith(" WARNING [MainThread] test_of_process_logs: water is high\n")


def test_a_json_line_has_the_same_facts_and_the_traceback(tmp_path: Path) -> None:
    log = log_to(tmp_path, **{"headrace.log.format": "json"})
    try:
        raise ValueError("broken\nin two")
    except ValueError:
        LOGGER.exception("it %s", "failed")
    LOGGER.info("next")
    log.close()
    first, second = map(json.loads, (tmp_path / "taskmanager-1.log").read_text().splitlines())
    assert first["level"] == "ERROR" and first["thread"] == "MainThread"
    assert first["logger"] == "test_of_process_logs" and first["message"] == "it failed"
    assert first["exception"].endswith("ValueError: broken\nin two")
    assert first["timestamp"].endswith("+00:00")
    assert second["message"] == "next" and "exception" not in second


@pytest.mark.parametrize("form", ["plain", "json"])
def test_passwords_of_uris_are_hidden_in_messages_and_tracebacks(tmp_path: Path, form: str) -> None:
    log = log_to(tmp_path, **{"headrace.log.format": form})
    try:
        raise ValueError("no s3://key:hush@bucket")
    except ValueError:
        LOGGER.exception("to s3://key:hush@bucket")
    log.close()
    text = (tmp_path / "taskmanager-1.log").read_text()
    assert "hush" not in text
    # In the message, the line of source and the error.
    assert text.count("******") == 3


def test_a_record_that_cannot_be_formatted_does_not_hurt_whoever_logs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = log_to(tmp_path)
    LOGGER.info("%d numbers", "no")
    LOGGER.info("after")
    log.close()
    assert (tmp_path / "taskmanager-1.log").read_text().endswith(": after\n")


def test_prints_go_into_a_file_of_their_own(tmp_path: Path) -> None:
    log = log_to(tmp_path)
    log.write_printed(b"said 1\n")
    log.close()
    assert (tmp_path / "taskmanager-1.out").read_bytes() == b"said 1\n"
    assert (tmp_path / "taskmanager-1.log").read_bytes() == b""


def test_files_have_the_size_and_the_number_of_the_settings(tmp_path: Path) -> None:
    log = log_to(tmp_path, **{"env.log.max-size": "4kb", "env.log.max": "2"})
    for _ in range(5):
        log.write_printed(b"x" * 4000 + b"\n")
    log.close()
    names = {path.name for path in tmp_path.iterdir() if ".out" in path.name}
    assert names == {"taskmanager-1.out", "taskmanager-1.out.1", "taskmanager-1.out.2"}


def test_a_format_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="plain, json"):
        log_to(tmp_path, **{"headrace.log.format": "xml"})


@pytest.mark.parametrize(
    ("word", "level"),
    [("DEBUG", logging.DEBUG), ("warn", logging.WARNING), ("ERROR", logging.ERROR)],
)
def test_the_level_is_given_in_flink_s_words(tmp_path: Path, word: str, level: int) -> None:
    log = log_to(tmp_path, **{"env.log.level": word})
    log.close()
    assert log.level == level
