"""Runs a program with high availability: its driver waits until it leads, and calls main then.

`headrace.spark.application` decides what happens to the application when this process ends.
"""

from collections.abc import Callable
from typing import cast

from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import (
    EXIT_TERMINATED,
    JOBS_GO_ON,
    Terminated,
    end_in_order_when_terminated,
)
from headrace.api.executors import PipelineExecutor
from headrace.cli.cluster.standby import StandbyFile
from headrace.cli.logs import EXIT_INTERRUPTED, report_failure
from headrace.cli.program_run import run_here
from headrace.client.program import Program
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.spark.application import EXIT_LEFT, Application
from headrace.spark.executor import SparkExecutor


def run_application(
    program: Program,
    settings: dict[str, str],
    executor: SparkExecutor,
    *,
    on_standby: Callable[[LeaderRecord], None],
    on_leading: Callable[[], None] = lambda: None,
    on_submitted: Callable[[JobClient], None] | None = None,
    before_close: Callable[[], None] | None = None,
    on_error: Callable[[BaseException], int] = report_failure,
    awaits_jobs: bool = False,
) -> int:
    """Run the program once this driver leads; return its exit code, even if another driver has run it.

    Returns EXIT_LEFT if the application goes on under the next driver. `on_standby` is called with the leader while
    this driver waits.
    """
    application: Application | None = None
    # Before it leads, nothing of the application has run here.
    take_back = end_in_order_when_terminated(lambda: "" if application is None else JOBS_GO_ON)
    file = StandbyFile(f"{program.name}-standby")

    def stands_by(leader: LeaderRecord | None) -> None:
        file.show(leader)
        if leader is not None:
            on_standby(leader)

    def main_is_over() -> None:
        if application is not None:
            application.main_is_over()
        if before_close is not None:
            before_close()

    def failed(error: BaseException) -> int:
        if application is not None:
            application.main_failed(error)
        return on_error(error)

    try:
        application = executor.start_application(program.name, stands_by)
        on_leading()
        end = application.run.end
        if end is not None:
            return end.exit_code
        code = run_here(
            program,
            settings,
            cast("PipelineExecutor", executor),
            on_submitted=on_submitted,
            before_close=main_is_over,
            on_error=failed,
            awaits_jobs=awaits_jobs,
            on_ended=application.main_ended,
        )
        return code if application.loss is None else EXIT_LEFT
    except Terminated:
        return EXIT_TERMINATED if application is None or application.loss is None else EXIT_LEFT
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        # Main has not begun: unless the program has a mistake, the driver can be started again.
        is_mistake = isinstance(error, HeadraceError) and error.domain is ErrorDomain.USER
        code = on_error(error)
        return code if is_mistake else EXIT_LEFT
    finally:
        file.remove()
        executor.close()
        take_back()
