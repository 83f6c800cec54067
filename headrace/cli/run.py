"""`headrace run program.py`: runs a program in this process, on its own Spark application (application mode)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
    program_in,
    program_options,
    program_settings,
    recovery_settings,
)
from headrace.cli.program_run import provide_python_files, run_here
from headrace.cli.run_answer import RunAnswer, only_answer_on_standard_output
from headrace.client.client_heartbeat import SHUTDOWN_ON_ATTACHED_EXIT
from headrace.client.program import Program
from headrace.cluster.high_availability.options import (
    HIGH_AVAILABILITY_TYPE,
    is_highly_available,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HeadraceError

if TYPE_CHECKING:
    from headrace.api.client.job_client import JobClient

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
  headrace run -d departures.py                          goes on when you log out
  headrace run --target session departures.py            on the session that 'headrace cluster start' started
  headrace run --target remote -m host:8081 -d departures.py
  headrace run --target per-job -d departures.py         a cluster for the job alone, made for it
  headrace run -d --json departures.py | jq -r '.jobs[0]["job-id"]'     for a script
  headrace run -d --supervise -D high-availability.type=file … departures.py    goes on when its driver dies
  headrace run --standby -D high-availability.type=file … departures.py         takes over when its driver is gone
"""


class _ClaimMode(click.Choice[str]):
    """Names of claim modes with `-`, as here, or with `_`, as Flink writes them."""

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
    help="Do not wait for the end of jobs: print the id of the first, and leave the program running with a cluster of "
    "its own, or the jobs to the session or remote cluster.",
)
@click.option(
    "-sae",
    "--shutdownOnAttachedExit",
    "ends_with_client",
    is_flag=True,
    help="Cancel jobs on a session or remote cluster when this command ends, however that comes.",
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
    help="Ignore state of the snapshot that no operator of the program claims.",
)
@click.option(
    "-cm",
    "--claim-mode",
    "--claimMode",
    type=_ClaimMode(["no-claim", "claim"], case_sensitive=False),
    help="Whether the snapshot belongs to the job from then on, which may delete it.",
)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Show the job while it runs (default: on a terminal).",
)
@click.option(
    "--standby",
    "is_standby",
    is_flag=True,
    help="Wait behind the driver that runs the program, and take over when it is gone; with -d return as soon as it "
    "waits (needs high-availability.type).",
)
@click.option(
    "--supervise",
    "is_supervised",
    is_flag=True,
    help="With -d: have a small process start the driver again whenever it ends before its program does (needs "
    "high-availability.type).",
)
def run(
    master: str | None,
    target: str | None,
    cluster_name: str | None,
    address: str | None,
    parallelism: int | None,
    definitions: tuple[tuple[str, str], ...],
    python: str | None,
    module: str | None,
    from_savepoint: str | None,
    allow_non_restored_state: bool,
    claim_mode: str | None,
    progress: bool | None,
    is_detached: bool,
    ends_with_client: bool,
    is_standby: bool,
    is_supervised: bool,
    namespace: str | None,
    verbose: bool,
    is_json: bool,
    words: tuple[str, ...],
    **of_python: str | None,
) -> int:
    """Run a program; the help text is `_HELP`."""
    configure_logs(verbose=verbose)
    program = program_in(words, python, module)
    settings = program_settings(
        definitions,
        parallelism=parallelism,
        target=target,
        address=address,
        namespace=namespace,
        of_python=of_python,
        master=master,
        cluster_name=cluster_name,
        is_detached=is_detached,
    )
    settings |= recovery_settings(from_savepoint, allow_non_restored_state, claim_mode)
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
        # Imported late: nobody else needs it.
        from headrace.cli.daemon.detached_run import run_detached

        return run_detached(
            program,
            settings,
            is_standby=is_standby,
            is_supervised=is_supervised,
            is_verbose=verbose,
            is_json=is_json,
        )
    if is_json:
        answer = RunAnswer()
        with only_answer_on_standard_output():
            code = _run_shown(program, settings, progress, is_detached, answer)
        print_json(answer.document(code))
        return code
    return _run_shown(program, settings, progress, is_detached)


def _refuse_highly_available_job(settings: dict[str, str]) -> None:
    """Raise UsageError before the program begins, whose first job would be refused."""
    # Imported late: nobody else needs it.
    from headrace.cli.daemon.daemon_cluster_descriptor import refuse_highly_available_job

    try:
        refuse_highly_available_job(Settings(settings))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error


def _refuse_unrecoverable(
    settings: dict[str, str], *, is_supervised: bool, is_detached: bool
) -> None:
    """Raise UsageError where no other driver could go on with the program."""
    given, option = Settings(settings), "--supervise" if is_supervised else "--standby"
    if runs_elsewhere(given) or not is_highly_available(given):
        raise click.UsageError(
            f"{option} is for programs with a cluster of their own whose next driver goes on with their jobs: -D "
            f"{HIGH_AVAILABILITY_TYPE.key}=… and its neighbours ('headrace options high-availability' lists them), "
            "and no --target"
        )
    if is_supervised and not is_detached:
        raise click.UsageError(
            "--supervise is for daemons: add -d; what starts a program in the foreground sees how it ends, and starts "
            "it again"
        )


def _run_shown(
    program: Program,
    settings: dict[str, str],
    progress: bool | None,
    is_detached: bool,
    answer: RunAnswer | None = None,
) -> int:
    """Run the program here with what shows its jobs: the id, the display, the answer of `--json`."""
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
    """Run the program on a cluster of its own once this driver leads it, and say meanwhile who does."""
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
