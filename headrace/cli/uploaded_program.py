"""The process of an uploaded program: `python -m headrace.cli.uploaded_program DESCRIPTOR`, started by the driver.

It reads a ProgramRequest from its standard input, runs the program as a client of that very cluster, and writes a
ProgramOutcome to the descriptor once the first job was accepted, or the plan was made. Errors are printed, and end the
process. It also ends when its standard input ends, because then its driver has ended.
"""

import os
import sys
import zipfile
from pathlib import Path
from typing import Final

import click
import msgspec

from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import without_job_text
from headrace.cli.logs import configure_logs, report_failure
from headrace.cli.program_options import (
    MODULE_NAMES,
    PROGRAM_NAMES,
    PYTHON_OPTIONS,
    REFUSED_OPTIONS,
)
from headrace.cli.program_run import (
    OnPlanned,
    planned_by,
    provide_python_files,
    run_alone,
)
from headrace.client.program import Program
from headrace.client.remote_executor import RemoteExecutor
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import JobId
from headrace.core.randomness import system_random
from headrace.core.threads import start_thread
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.graph.job_plan import JobPlan
from headrace.graph.pipeline_options import PYTHON_FILES
from headrace.graph.stream_graph import StreamGraph
from headrace.rest.programs.program_messages import MESSAGE_LENGTH, ProgramOutcome, ProgramRequest

PYTHON_DRIVER: Final = "org.apache.flink.client.python.PythonDriver"
"""Class with which Flink runs Python programs; its arguments name the program."""
_EXIT_ABANDONED: Final = 143
_ARCHIVES: Final = (".zip", ".whl")
_KEYS: Final = {name: each.setting.key for each in PYTHON_OPTIONS for name in each.names}
_IGNORED: Final = {name for names, _ in REFUSED_OPTIONS for name in names}
"""Options that are ignored: a client of Flink sends them, too."""


def main() -> int:
    """Run the program of the request; return the exit code."""
    outcomes = _Outcomes(int(sys.argv[1]))
    request = _take_request()
    configure_logs(verbose=False)
    try:
        program, settings = program_of(request)

        def run(leave: OnPlanned) -> None:
            on_planned = leave if request.is_plan else None
            _run(program, settings, request.job_id, outcomes, on_planned)

        plan = planned_by(_job_plan, run)
        if plan is not None:
            outcomes.send(ProgramOutcome(plan=plan))
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
        return 0 if outcomes.is_sent else _without_job()
    except Exception as error:
        return report_failure(error)
    return 0 if outcomes.is_sent else _without_job()


def program_of(request: ProgramRequest) -> tuple[Program, dict[str, str]]:
    """Return the program of a request, with its settings.

    The program is the uploaded file, a module of it, or the program that the arguments of a PythonDriver name.
    """
    uploaded = Path(request.path)
    settings = dict(request.settings)
    if request.entry_class == PYTHON_DRIVER:
        program = _driven(uploaded, request.arguments, settings)
    else:
        program = Program(uploaded, request.arguments, request.entry_class or None)
    if uploaded.suffix in _ARCHIVES:
        # Functions are of modules in the archive, which workers need too.
        given = settings.get(PYTHON_FILES.key)
        settings[PYTHON_FILES.key] = f"{uploaded},{given}" if given else str(uploaded)
        if program.path == uploaded and program.module is None:
            _expect_main(uploaded)
    elif program.path == uploaded:
        program = msgspec.structs.replace(program, module=None)
    return program, settings


def _expect_main(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        if "__main__.py" not in opened.namelist():
            raise ProgramError(
                f"{archive.name} has no __main__.py: add one, or name the module to run (entryClass)"
            )


def _driven(uploaded: Path, arguments: tuple[str, ...], settings: dict[str, str]) -> Program:
    """Return the program that the arguments of a PythonDriver name; its options become settings."""
    path, module = uploaded, None
    rest = list(arguments)
    while rest and rest[0].startswith(("-py", "--py")):
        if len(rest) == 1:
            raise ProgramError(f"the argument {rest[0]} of the program's driver has no value")
        name, value, *rest = rest
        if name in PROGRAM_NAMES:
            named = Path(value)
            # The file that was uploaded has a prefix that the client does not know.
            path = uploaded if uploaded.name.endswith(f"_{named.name}") else named
        elif name in MODULE_NAMES:
            module = value
        elif name in _KEYS:
            settings[_KEYS[name]] = value
        elif name not in _IGNORED:
            raise ProgramError(f"the program's driver has no argument {name}")
    return Program(path, tuple(rest), module)


def _run(
    program: Program,
    settings: dict[str, str],
    job_id: str,
    outcomes: "_Outcomes",
    on_planned: OnPlanned | None,
) -> None:
    provide_python_files(settings)
    executor = _FirstJobExecutor(Settings(settings), job_id)

    def submitted(client: JobClient) -> None:
        outcomes.send(ProgramOutcome(job_id=client.get_job_id().hex()))

    run_alone(program, settings, executor, on_submitted=submitted, on_planned=on_planned)


class _FirstJobExecutor(RemoteExecutor):
    """Gives the first job the requested id."""

    def __init__(self, settings: Settings, job_id: str) -> None:
        super().__init__(settings)
        self._job_id = job_id

    def submit(self, job_graph: JobGraph) -> JobClient:
        job_id, self._job_id = self._job_id, ""
        if job_id:
            job_graph = msgspec.structs.replace(job_graph, job_id=JobId.from_hex(job_id))
        return super().submit(job_graph)


def _job_plan(graph: StreamGraph, settings: Settings) -> JobPlan:
    return JobPlan.of(generate_job_graph(graph, JobId.generate(system_random()), settings))


def _without_job() -> int:
    click.echo(without_job_text(), err=True)
    return 1


def _take_request() -> ProgramRequest:
    """Read the request, then watch for the end of the driver; the program has no standard input."""
    driver = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    (size,) = MESSAGE_LENGTH.unpack(_read(driver, MESSAGE_LENGTH.size))
    request = msgspec.msgpack.decode(_read(driver, size), type=ProgramRequest)

    def watch() -> None:
        os.read(driver, 1)
        os._exit(_EXIT_ABANDONED)

    start_thread("headrace-driver-watch", watch)
    return request


def _read(descriptor: int, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        content = os.read(descriptor, size - len(found))
        if not content:
            os._exit(_EXIT_ABANDONED)
        found += content
    return bytes(found)


class _Outcomes:
    """Writes the first outcome to the descriptor, and no other."""

    def __init__(self, descriptor: int) -> None:
        # No process that the program starts inherits it.
        os.set_inheritable(descriptor, False)
        self._descriptor: Final = descriptor
        self.is_sent = False

    def send(self, outcome: ProgramOutcome) -> None:
        """Send an outcome to the driver, unless one was sent before."""
        if self.is_sent:
            return
        self.is_sent = True
        sys.stdout.flush()
        with os.fdopen(self._descriptor, "wb") as out:
            content = msgspec.msgpack.encode(outcome)
            out.write(MESSAGE_LENGTH.pack(len(content)) + content)


if __name__ == "__main__":
    sys.exit(main())
