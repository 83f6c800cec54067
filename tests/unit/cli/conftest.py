"""A shell in which commands run. They set up the process's logs; tests that follow must not notice."""

import logging
from collections.abc import Iterator

import pytest

from headrace.cli.logs import ALWAYS_HEARD, MILESTONES
from headrace.cli.main import main
from tests.unit.cli.shell import Outcome, Shell


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Put the package's logger back as it was before the command."""
    logger = logging.getLogger("headrace")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    logger.handlers, level, logger.propagate = before
    logger.setLevel(level)
    for name in {*ALWAYS_HEARD, *MILESTONES}:
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    # Times are printed in the zone of the machine.
    monkeypatch.setenv("TZ", "UTC")

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Outcome(captured.out, captured.err, ended.value.code)

    return run
