"""Logs of Headrace on standard error."""

import io
import logging
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from headrace.api.settings import checkpoint_config, slot_sharing_group
from headrace.api.streams import window_settings
from headrace.cli.logs import ALWAYS_HEARD, configure_logs
from headrace.cluster.job_master import job_notices
from headrace.cluster.job_master.checkpointing import job_lineage
from headrace.connectors.dataframe import sink
from headrace.connectors.files.source import enumerator


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    logger = logging.getLogger("headrace")
    handlers, level, propagates = logger.handlers, logger.level, logger.propagate
    levels = {name: logging.getLogger(name).level for name in ALWAYS_HEARD}
    yield
    logger.handlers, logger.propagate = handlers, propagates
    logger.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def test_notices_of_jobs_are_shown_without_verbose_and_other_warnings_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(verbose=False)
    logging.getLogger(job_notices.__name__).warning("it restarts")
    logging.getLogger("headrace.rpc").warning("a tell is lost")
    said = capsys.readouterr().err
    assert "it restarts" in said and "lost" not in said


def test_what_is_logged_beside_a_live_display_goes_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The display puts itself in the place of `sys.stderr`, so as to have lines above it."""
    configure_logs(verbose=False)
    display = io.StringIO()
    monkeypatch.setattr(sys, "stderr", display)
    logging.getLogger(job_notices.__name__).warning("it restarts")
    assert "it restarts" in display.getvalue()


@pytest.mark.parametrize(
    "module",
    [checkpoint_config, slot_sharing_group, window_settings, job_lineage, sink, enumerator],
    ids=lambda module: module.__name__,
)
def test_what_a_user_is_to_change_is_shown_without_verbose(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(verbose=False)
    logging.getLogger(module.__name__).warning("this is lost")
    assert "this is lost" in capsys.readouterr().err
