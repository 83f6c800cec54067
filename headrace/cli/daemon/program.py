"""A program that runs in a daemon, with a cluster of its own: it reports its first job, and ends with its last."""

from pathlib import Path
from typing import cast

from headrace.api.client.job_client import JobClient
from headrace.api.executors import PipelineExecutor, set_default_settings
from headrace.cli.daemon.messages import Report, RunProgram
from headrace.cli.daemon.reporter import Reporter
from headrace.cli.logs import report_failure
from headrace.cli.program_run import provide_python_files, run_here
from headrace.core.config import Settings
from headrace.spark.executor import SparkExecutor


def run_program(
    program: RunProgram, settings: Settings, log_folder: Path, reporter: Reporter
) -> int:
    """Run a program, wait for the jobs that it leaves running, and return its exit code. In the main thread."""
    executor = SparkExecutor(settings, log_folder=log_folder)

    def submitted(client: JobClient) -> None:
        if not reporter.is_open:
            return
        rest = executor.rest
        reporter.tell(
            Report(
                job_id=str(client.get_job_id()),
                address="" if rest is None else rest.address,
                connection_file="" if rest is None else str(rest.connection_file),
            )
        )

    def failed(error: BaseException) -> int:
        reporter.tell_failure(error)
        return report_failure(error)

    runner: PipelineExecutor = cast("PipelineExecutor", executor)
    given = settings.to_dict()
    provide_python_files(given)
    set_default_settings(given)
    code = run_here(
        Path(program.program),
        program.arguments,
        given,
        runner,
        on_submitted=submitted,
        on_error=failed,
        awaits_jobs=True,
    )
    reporter.tell(Report(exit_code=code))
    return code
