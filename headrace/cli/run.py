"""`headrace run program.py`: runs a program in this process, on its own Spark application (application mode)."""

import contextlib
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from headrace.api.executors import (
    PER_JOB,
    create_executor,
    executor_name,
    runs_elsewhere,
    set_default_settings,
)
from headrace.cli.general_options import print_json, refuse_unusable
from headrace.cli.logs import configure_logs, report_failure
from headrace.cli.program_options import (
    ProgramCommand,
    ProgramOptions,
    program_options,
    recovery_settings,
)
from headrace.cli.program_run import provide_python_files, run_here
from headrace.client.client_heartbeat import SHUTDOWN_ON_ATTACHED_EXIT
from headrace.client.program import Program
from headrace.cluster.high_availability.options import (
    HIGH_AVAILABILITY_TYPE,
    is_highly_available,
)
from headrace.core.config import Settings
from headrace.core.error_text import describe
from headrace.core.errors import ConfigurationError, HeadraceError

if TYPE_CHECKING:
    from headrace.api.client.job_client import JobClient

_ASK_TIMEOUT_S: Final = 10.0
_HELP: Final = """\
Run PROGRAM with its ARGUMENTS.

The program is plain Python. Its jobs run on Spark; everything that it prints appears here.

\b
Examples:
  headrace run departures.py
  headrace run -p 2 --progress departures.py --year 2013
  headrace run --master 'local-cluster[2,2,2048]' departures.py
  headrace run -s savepoints/savepoint-1a2b3c-4d5e6f708192 departures.py
  headrace run -py departures.py -pyfs rules.py          as with `flink run`; -pym MODULE runs a module
  headrace run -d departures.py                          keeps running when you log out
  headrace run --target session departures.py            on the session that 'headrace cluster start' started
  headrace run --target remote -m host:8081 -d departures.py
  headrace run --target per-job -d departures.py         on a new cluster for the job alone
  headrace run -d --json departures.py | jq -r '.jobs[0]["job-id"]'     for a script
  headrace run -d --supervise -D high-availability.type=file … departures.py    continues if its driver dies
  headrace run --standby -D high-availability.type=file … departures.py         takes over if its driver dies
"""


class _ClaimMode(click.Choice[str]):
    """Names of claim modes with `-`, or with `_`, as Flink writes them."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value.replace("_", "-"), param, ctx)


# What follows the program is the program's, so options end there.
@click.command(cls=ProgramCommand, help=_HELP, context_settings={"allow_interspersed_args": False})
@click.option(
    "--master",
    metavar="URL",
    help="Spark master: local[n], local-cluster[…], spark://…, yarn, k8s://…",
)
@program_options
@click.option(
    "-d",
    "--detached",
    "is_detached",
    is_flag=True,
    help="Print the id of the first job and do not wait for its end: the program keeps running with a cluster of its "
    "own, or its jobs on the session or remote cluster.",
)
@click.option(
    "-sae",
    "--shutdownOnAttachedExit",
    "ends_with_client",
    is_flag=True,
    help="Cancel jobs on a session or remote cluster when this command ends for any reason.",
)
@click.option(
    "--cluster",
    "cluster_name",
    metavar="NAME",
    help="Session of --target session (default: the only one of this machine).",
)
@click.option(
    "-s",
    "--from-savepoint",
    "--fromSavepoint",
    metavar="PATH",
    help="Start from this savepoint or checkpoint.",
)
@click.option(
    "-n",
    "--allow-non-restored-state",
    "--allowNonRestoredState",
    is_flag=True,
    help="Ignore state of the snapshot that belongs to no operator of the program.",
)
@click.option(
    "-cm",
    "--claim-mode",
    "--claimMode",
    type=_ClaimMode(["no-claim", "claim"], case_sensitive=False),
    help="claim: the job owns the snapshot and may delete it; no-claim: it stays yours.",
)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show a live view of the job (default: on a terminal).",
)
@click.option(
    "--standby",
    "is_standby",
    is_flag=True,
    help="Wait while another driver runs the program, and take over if it dies; with -d return as soon as it waits "
    "(needs high-availability.type).",
)
@click.option(
    "--supervise",
    "is_supervised",
    is_flag=True,
    help="With -d: let a small process restart the driver whenever it ends before its program does (needs "
    "high-availability.type).",
)
def run(
    options: ProgramOptions,
    master: str | None,
    cluster_name: str | None,
    from_savepoint: str | None,
    allow_non_restored_state: bool,
    claim_mode: str | None,
    progress: bool | None,
    is_detached: bool,
    ends_with_client: bool,
    is_standby: bool,
    is_supervised: bool,
) -> int:
    """Run a program; the help text is `_HELP`."""
    configure_logs(verbose=options.is_verbose)
    program = options.program()
    settings = options.settings(
        master=master, cluster_name=cluster_name, is_detached=is_detached
    ) | recovery_settings(from_savepoint, allow_non_restored_state, claim_mode)
    if ends_with_client:
        settings[SHUTDOWN_ON_ATTACHED_EXIT.key] = "true"
    refuse_unusable(settings)
    if is_standby or is_supervised:
        _refuse_unrecoverable(settings, is_supervised=is_supervised, is_detached=is_detached)
    elif executor_name(Settings(settings)) == PER_JOB:
        _refuse_highly_available_job(settings)
    provide_python_files(settings)
    set_default_settings(settings)
    if is_detached and not runs_elsewhere(Settings(settings)):
        return _run_detached(
            program, settings, options, is_standby=is_standby, is_supervised=is_supervised
        )
    if options.is_json:
        return _run_answered(program, settings, progress, is_detached)
    return _run_shown(program, settings, progress, is_detached)


def _refuse_highly_available_job(settings: dict[str, str]) -> None:
    """Raise UsageError before the program begins, because its first job would be refused."""
    # Imported late: only this branch needs it.
    from headrace.cli.daemon.daemon_cluster_descriptor import refuse_highly_available_job

    try:
        refuse_highly_available_job(Settings(settings))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


def _refuse_unrecoverable(
    settings: dict[str, str], *, is_supervised: bool, is_detached: bool
) -> None:
    """Raise UsageError if no other driver could continue the program."""
    given, option = Settings(settings), "--supervise" if is_supervised else "--standby"
    if runs_elsewhere(given) or not is_highly_available(given):
        raise click.UsageError(
            f"{option} needs a program with a cluster of its own whose next driver continues its jobs: set -D "
            f"{HIGH_AVAILABILITY_TYPE.key}=… and related settings ('headrace options high-availability' lists them), "
            "and leave out --target"
        )
    if is_supervised and not is_detached:
        raise click.UsageError(
            "--supervise needs -d: without it, let systemd or the container restart the program"
        )


def _run_detached(
    program: Program,
    settings: dict[str, str],
    options: ProgramOptions,
    *,
    is_standby: bool,
    is_supervised: bool,
) -> int:
    """Leave the program to a daemon with a cluster of its own."""
    # Imported late: nobody else needs it.
    from headrace.cli.daemon.detached_run import run_detached

    return run_detached(
        program,
        settings,
        is_standby=is_standby,
        is_supervised=is_supervised,
        is_verbose=options.is_verbose,
        is_json=options.is_json,
    )


def _run_answered(
    program: Program, settings: dict[str, str], progress: bool | None, is_detached: bool
) -> int:
    """Run the program here, and print a document of its jobs and errors, and nothing else, on standard output."""
    answer = _RunAnswer()
    with _only_answer_on_standard_output():
        code = _run_shown(program, settings, progress, is_detached, answer)
    print_json(answer.document(code))
    return code


def _run_shown(
    program: Program,
    settings: dict[str, str],
    progress: bool | None,
    is_detached: bool,
    answer: "_RunAnswer | None" = None,
) -> int:
    """Run the program in this process and show its jobs: the id, the display, the answer of `--json`."""
    # Imported late: it brings numpy.
    from headrace.cli.progress import ProgressDisplay, SlotWaitDisplay

    given = Settings(settings)
    # As in Flink, which prints no such lines of a program that a cluster of its own runs.
    is_elsewhere = runs_elsewhere(given)
    display = ProgressDisplay.choose(progress)
    if display is None and is_elsewhere:
        # A cluster of the program's own logs here what its jobs wait for.
        display = SlotWaitDisplay()

    def submitted(client: "JobClient") -> None:
        if answer is not None:
            answer.take_job(client)
        if is_elsewhere:
            click.echo(f"Job has been submitted with JobID {client.get_job_id()}")
        if display is not None and not is_detached:
            display.watch(client)

    def end_shows() -> None:
        if display is not None:
            display.stop()
        if answer is not None:
            answer.ask_jobs()

    on_error = report_failure if answer is None else answer.take_error
    if is_highly_available(given) and not is_elsewhere:
        return _run_highly_available(
            program, settings, on_submitted=submitted, before_close=end_shows, on_error=on_error
        )
    try:
        executor = create_executor(given)
    except HeadraceError as error:
        return on_error(error)
    return run_here(
        program,
        settings,
        executor,
        on_submitted=submitted,
        on_finished=click.echo if is_elsewhere else None,
        before_close=end_shows,
        on_error=on_error,
    )


def _run_highly_available(
    program: Program,
    settings: dict[str, str],
    *,
    on_submitted: Callable[["JobClient"], None],
    before_close: Callable[[], None],
    on_error: Callable[[BaseException], int],
) -> int:
    """Run the program on a cluster of its own once this driver leads it; print the leader while it waits."""
    # Imported late: few programs need it.
    from headrace.cli.application_run import run_application
    from headrace.cluster.high_availability.lease import LeaderRecord, leader_at
    from headrace.spark.executor import SparkExecutor

    def stands_by(leader: LeaderRecord) -> None:
        place = leader_at(leader.holder, leader.address)
        click.echo(f"standby: takes over when {place}, which runs the program, is gone", err=True)

    return run_application(
        program,
        settings,
        SparkExecutor(Settings(settings)),
        on_standby=stands_by,
        on_submitted=on_submitted,
        before_close=before_close,
        on_error=on_error,
    )


class _RunAnswer:
    """The document that `--json` prints at the end of a program: collects its jobs and errors."""

    def __init__(self) -> None:
        self._clients: list[JobClient] = []
        self._jobs: list[dict[str, str]] = []
        self._errors: list[str] = []

    def take_job(self, client: "JobClient") -> None:
        """Remember a job that was submitted."""
        self._clients.append(client)

    def take_error(self, error: BaseException) -> int:
        """Remember an error and print it; return the exit code."""
        self._errors.append(describe(error, wants_details=False)[0])
        return report_failure(error)

    def ask_jobs(self) -> None:
        """Ask for names and states of the jobs, while their cluster still answers."""
        self._jobs = [_job_facts(client) for client in self._clients]

    def document(self, code: int) -> dict[str, Any]:
        """Return the document."""
        return {"exit-code": code, "jobs": self._jobs, "errors": self._errors}


def _job_facts(client: "JobClient") -> dict[str, str]:
    facts = {"job-id": str(client.get_job_id())}
    with contextlib.suppress(HeadraceError, TimeoutError):
        details = client.get_job_details().result(_ASK_TIMEOUT_S)
        facts |= {"name": details.name, "state": details.status.name}
    return facts


@contextmanager
def _only_answer_on_standard_output() -> Generator[None, None, None]:
    """Send all output of the block to standard error, including that of Spark's JVM and other children."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
