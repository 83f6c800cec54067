"""Processes of uploaded programs are bounded in time and number, and end with the cluster."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.core.clock import SystemClock
from headrace.rest.handler_errors import BadRequestError, UnavailableError
from headrace.rest.programs import program_runs
from headrace.rest.programs.program_messages import ProgramRequest
from headrace.rest.programs.program_runs import ProgramRuns
from testkit.waiting import wait_until

IMPORTS = """\
import os, pathlib, subprocess, sys, threading
from headrace.rest.programs.program_messages import MESSAGE_LENGTH, ProgramOutcome
import msgspec

def tell(job_id):
    content = msgspec.msgpack.encode(ProgramOutcome(job_id=job_id))
    os.write(int(sys.argv[1]), MESSAGE_LENGTH.pack(len(content)) + content)
"""
# It holds all pipes of its parent open, and ends with its group.
CHILD = "subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], pass_fds=[int(sys.argv[1])])\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put other code in the place of the module that processes run."""

    def put(code: str) -> None:
        (tmp_path / "process_of_a_test.py").write_text(IMPORTS + code)
        monkeypatch.setattr(program_runs, "PROCESS_MODULE", "process_of_a_test")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    return put


def asked(
    timeout_ms: float, call: Callable[[ProgramRuns], Coroutine[Any, Any, None]]
) -> ProgramRuns:
    runs = ProgramRuns(SystemClock(), timeout_ms)

    async def main() -> None:
        await call(runs)

    try:
        asyncio.run(main())
    finally:
        runs.close()
    return runs


def test_what_a_process_printed_last_is_its_error(module: Callable[[str], None]) -> None:
    module("print('the first word')\nsys.exit('the last word')")

    async def ask(runs: ProgramRuns) -> None:
        with pytest.raises(BadRequestError) as refused:
            await runs.run(ProgramRequest("job.py"))
        assert "the last word" in refused.value.texts[1]

    asked(60_000, ask)


def test_a_process_has_no_token_that_the_driver_was_given_for_another_cluster(
    module: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", "of another cluster")
    module("sys.exit(f'token: {os.environ.get(\"HEADRACE_TOKEN\")}')")

    async def ask(runs: ProgramRuns) -> None:
        with pytest.raises(BadRequestError) as refused:
            await runs.run(ProgramRequest("job.py"))
        assert "token: None" in refused.value.texts[1]

    asked(60_000, ask)


def test_a_process_that_takes_too_long_is_ended(module: Callable[[str], None]) -> None:
    module("print('still here', flush=True)\nthreading.Event().wait()")

    async def ask(runs: ProgramRuns) -> None:
        with pytest.raises(BadRequestError) as refused:
            await runs.run(ProgramRequest("job.py"))
        assert "web.timeout" in refused.value.texts[1]

    asked(300, ask)


def test_there_are_only_so_many_and_all_of_them_end_with_the_cluster(
    module: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_runs, "_STARTING_MAX", 1)
    module(
        f"file = pathlib.Path({str(tmp_path)!r}, 'pid.new')\n"
        "file.write_text(str(os.getpid()))\n"
        "file.rename(file.with_suffix(''))\n"
        "threading.Event().wait()"
    )

    async def ask(runs: ProgramRuns) -> None:
        loop = asyncio.get_running_loop()
        first = loop.create_task(runs.run(ProgramRequest("job.py")))
        await loop.run_in_executor(None, lambda: wait_until((tmp_path / "pid").exists))
        with pytest.raises(UnavailableError):
            await runs.run(ProgramRequest("other.py"))
        await loop.run_in_executor(None, runs.close)
        with pytest.raises(BadRequestError) as refused:
            await first
        assert "the cluster ended" in refused.value.texts[1]
        with pytest.raises(UnavailableError):
            await runs.run(ProgramRequest("late.py"))

    asked(600_000, ask)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_end_of_a_process_is_told_although_its_children_go_on(
    module: Callable[[str], None],
) -> None:
    module(CHILD + "print('leaves early')\nsys.exit(3)")

    async def ask(runs: ProgramRuns) -> None:
        with pytest.raises(BadRequestError) as refused:
            await runs.run(ProgramRequest("job.py"))
        assert refused.value.texts[1].splitlines() == [
            "the process ended with code 3",
            "leaves early",
        ]

    asked(600_000, ask)


def test_a_program_that_goes_on_after_its_first_job_is_answered_and_leaves_its_place(
    module: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_runs, "_STARTING_MAX", 1)
    module(CHILD + "tell('7a' * 16)\nthreading.Event().wait()")

    async def ask(runs: ProgramRuns) -> None:
        for _ in range(2):
            outcome = await runs.run(ProgramRequest("job.py"))
            assert outcome.job_id == "7a" * 16

    asked(600_000, ask)


def test_programs_that_go_on_after_their_jobs_are_bounded(
    module: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_runs, "_PROCESSES_MAX", 1)
    module("tell('7a' * 16)\nthreading.Event().wait()")

    async def ask(runs: ProgramRuns) -> None:
        await runs.run(ProgramRequest("job.py"))
        with pytest.raises(UnavailableError, match="still run after their first job"):
            await runs.run(ProgramRequest("other.py"))

    asked(600_000, ask)
