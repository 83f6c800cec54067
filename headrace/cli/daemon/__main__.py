"""`python -m headrace.cli.daemon`: a daemon, started by `daemon_process`.

Reads instructions from its standard input.
"""

import faulthandler
import os
import sys
from pathlib import Path
from typing import Final, cast

import msgspec

from headrace.api.client.job_client import JobClient
from headrace.api.executors import PipelineExecutor, set_default_settings
from headrace.cli.application_run import run_application
from headrace.cli.cluster.session import NameTakenError, serve_session, taken_name
from headrace.cli.daemon.console_file import ConsoleFile
from headrace.cli.daemon.messages import (
    Instructions,
    Report,
    Reporter,
    RunJobCluster,
    RunProgram,
    RunSession,
)
from headrace.cli.daemon.supervisor import Supervisor
from headrace.cli.logs import configure_logs, report_failure
from headrace.cli.program_run import provide_python_files, run_here
from headrace.client.deployed_cluster import DeployedCluster
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.cluster.high_availability.options import is_highly_available
from headrace.core.config import Settings
from headrace.core.process.log_files import LOG_MAX_SIZE
from headrace.spark.executor import SparkExecutor
from headrace.spark.session_cluster import JobCluster, SessionCluster

_STANDARD_INPUT: Final = 0


def main() -> int:
    """Follow the instructions, and return the exit code."""
    instructions = Instructions.from_json(sys.stdin.buffer.read())
    _have_no_input()
    faulthandler.enable()
    configure_logs(verbose=instructions.is_verbose)
    settings = Settings(instructions.settings)
    reporter = Reporter(instructions.report_descriptor)
    folder = Path(instructions.log_folder)
    place = DeployedCluster(pid=os.getpid(), log_folder=instructions.log_folder)
    console = ConsoleFile(folder, settings.get_option(LOG_MAX_SIZE))
    try:
        match instructions.duty:
            case RunSession(is_supervised=True) | RunProgram(is_supervised=True) as duty:
                supervisor = Supervisor(
                    duty,
                    instructions.settings,
                    instructions.is_verbose,
                    log_folder=instructions.log_folder,
                )
                return supervisor.run(reporter)
            case RunSession(name, is_standby):
                with taken_name(name):
                    return serve_session(
                        settings,
                        name,
                        folder,
                        lambda cluster: reporter.tell(_ready(cluster, place)),
                        on_standby=(lambda leader: reporter.tell(_waiting(leader, place)))
                        if is_standby
                        else None,
                    )
            case RunJobCluster(name):
                return serve_session(
                    settings,
                    name,
                    folder,
                    lambda cluster: reporter.tell(_ready(cluster, place)),
                    create=JobCluster,
                )
            case RunProgram() as duty:
                return _run_program(duty, settings, place, reporter)
    except Exception as error:
        reporter.tell_failure(error, is_name_taken=isinstance(error, NameTakenError))
        return report_failure(error)
    finally:
        console.close()


def _ready(cluster: SessionCluster, place: DeployedCluster) -> Report:
    rest = cluster.rest
    return Report(
        msgspec.structs.replace(
            place,
            address=rest.address,
            connection_file=str(rest.connection_file),
            master=cluster.master,
        )
    )


def _waiting(leader: LeaderRecord, place: DeployedCluster) -> Report:
    return Report(msgspec.structs.replace(place, leader=leader.holder, address=leader.address))


def _have_no_input() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STANDARD_INPUT)
    os.close(nothing)


def _run_program(
    duty: RunProgram, settings: Settings, place: DeployedCluster, reporter: Reporter
) -> int:
    """Run a program, wait for the jobs that it leaves running, and return its exit code. Call it in the main thread."""
    executor = SparkExecutor(settings, log_folder=Path(place.log_folder))
    progress = _ProgramProgress(executor, place, reporter, tells_leaders=duty.is_standby)
    given = settings.to_dict()
    provide_python_files(given)
    set_default_settings(given)
    if is_highly_available(settings):
        code = run_application(
            duty.program,
            given,
            executor,
            on_standby=progress.stands_by,
            on_leading=progress.leads,
            on_submitted=progress.submitted,
            on_error=progress.failed,
            awaits_jobs=True,
        )
    else:
        code = run_here(
            duty.program,
            given,
            cast("PipelineExecutor", executor),
            on_submitted=progress.submitted,
            on_error=progress.failed,
            awaits_jobs=True,
        )
    reporter.tell(Report(place, exit_code=code))
    return code


class _ProgramProgress:
    """Reports how far a program has come, and with `tells_leaders` which driver leads its cluster."""

    def __init__(
        self,
        executor: SparkExecutor,
        place: DeployedCluster,
        reporter: Reporter,
        *,
        tells_leaders: bool,
    ) -> None:
        self._executor: Final = executor
        self._place: Final = place
        self._reporter: Final = reporter
        self._tells_leaders: Final = tells_leaders

    def submitted(self, client: JobClient) -> None:
        """Tell of the first job."""
        if self._reporter.is_open:
            self._tell_running(str(client.get_job_id()))

    def stands_by(self, leader: LeaderRecord) -> None:
        """Tell which driver runs the program."""
        if self._tells_leaders:
            self._reporter.tell(_waiting(leader, self._place))

    def leads(self) -> None:
        """Tell that this driver runs it now."""
        if self._tells_leaders:
            self._tell_running()

    def failed(self, error: BaseException) -> int:
        """Tell of the error and log it; return the exit code."""
        self._reporter.tell_failure(error)
        return report_failure(error)

    def _tell_running(self, job_id: str = "") -> None:
        rest = self._executor.rest
        self._reporter.tell(
            Report(
                msgspec.structs.replace(
                    self._place,
                    job_id=job_id,
                    address="" if rest is None else rest.address,
                    connection_file="" if rest is None else str(rest.connection_file),
                )
            )
        )


if __name__ == "__main__":
    sys.exit(main())
