"""Application: a program with its own cluster, whose main is called again under each new leader.

    main begins ──► main ends: recorded ──► jobs end ──► results of jobs are deleted ──► the leadership is given back
         │                                  (a new leader only does the rest)
         └─ the driver dies or loses the leadership ──► the next leader calls main again, in the same run

Within a run the job of an execution has the same id under each leader: a running job is found running, and a job that
has ended does not run again. Results of jobs are therefore kept until the run has ended. Source: Flink
ApplicationDispatcherBootstrap, EmbeddedExecutor.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import end_program
from headrace.api.settings.job_artifacts import python_files
from headrace.checkpoint.errors import CheckpointStorageError
from headrace.cluster.high_availability.application_store import ApplicationEnd, ApplicationRun
from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph
from headrace.cluster.high_availability.job_result_store import JobResultEntry
from headrace.cluster.high_availability.leader_election_service import (
    LeaderElectionService,
    LeadershipLostError,
    OnStandby,
    later_text,
)
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.cluster.high_availability.options import (
    CLUSTER_ID,
    DELETE_ON_COMMIT,
    HIGH_AVAILABILITY_TYPE,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HeadraceError, HostError, ProgramError
from headrace.core.ids import JobId, OperatorId
from headrace.core.lifecycle import JobStatus
from headrace.core.threads import start_thread
from headrace.gateways.dispatcher import DispatcherGateway, JobResult
from headrace.gateways.errors import (
    DuplicateJobSubmissionError,
    NotLeadingError,
    UnknownJobError,
)
from headrace.gateways.job_master import CollectedResults
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_plan import JobPlan
from headrace.graph.pipeline_options import runs_in_batch
from headrace.spark.batch.batch_support import COLLECT_COORDINATOR
from headrace.spark.session.jvm import has_jvm_ended

if TYPE_CHECKING:
    from headrace.cluster.cluster_handle import ClusterHandle
    from headrace.spark.host import SparkHost

_LOG: Final = logging.getLogger(__name__)

EXIT_LEFT: Final = 75
"""Exit code of a driver that must be started again, as its application has not ended: EX_TEMPFAIL of sysexits.h."""
_LOOK_S: Final = 0.5
_GRACE_S: Final = 30.0
"""Time in which an interrupted main must return; after it the process ends at once."""
_ASK_TIMEOUT_S: Final = 60.0
_PASSING: Final = (
    CheckpointStorageError,
    DuplicateJobSubmissionError,
    LeadershipLostError,
    NotLeadingError,
)
"""Errors of a submission that pass when this process loses the leadership, or when the storage is available again."""
_STORAGE_FAILURES_MAX: Final = 20
_OF_DATAFRAMES: Final = "dataframe-"
_NO_JVM: Final = "the JVM of its Spark has ended"


class DriverLeftError(HostError):
    """This driver cannot continue its application, which has not ended."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}; the application continues under the next driver, which calls main again: restart this driver "
            f"if no standby is waiting"
        )


class UnrecoverableJobError(ProgramError):
    """A job cannot go on under the next leader of its application."""

    def __init__(self, job_name: str, reason: str) -> None:
        super().__init__(
            f"job '{job_name}' cannot go on under the next leader of its application "
            f"({HIGH_AVAILABILITY_TYPE.key}): {reason}"
        )


class Application:
    """One driver of an application with high availability. Its main may be called once `granted` has returned."""

    def __init__(self, settings: Settings, on_standby: OnStandby) -> None:
        """Create the driver's part; `on_standby` is called with the present leader while this driver waits to lead."""
        self._keeps_results: Final = not settings.get_option(DELETE_ON_COMMIT)
        self._cluster: Final = settings.get_option(CLUSTER_ID)
        self._on_standby: Final = on_standby
        self._stood_by: Final[set[int]] = set()
        self._services: HighAvailabilityServices | None = None
        self._run: ApplicationRun | None = None
        self._run_before: ApplicationRun | None = None
        self._results: dict[JobId, JobResult] = {}
        self._epoch = 0
        self._host: SparkHost | None = None
        # Threads of a program may submit concurrently: no two jobs may get the same number.
        self._lock: Final = threading.Lock()
        self._execution_count = 0
        self._is_main_over: Final = threading.Event()
        self.loss: BaseException | None = None
        """The reason why this driver leaves its application to the next one, or None."""

    @property
    def run(self) -> ApplicationRun:
        """Return the run that this driver takes part in.

        Its `end` is set if an earlier driver has recorded the end of main.
        """
        assert self._run is not None, "this driver does not lead"
        return self._run

    def stands_by(self, leader: LeaderRecord | None) -> None:
        """Report the present leader; implements OnStandby. Any thread."""
        if self._services is None:
            if leader is not None:
                self._stood_by.add(leader.epoch)
            self._on_standby(leader)
        elif leader is not None:
            self._leave(DriverLeftError(later_text(leader.epoch)))

    def granted(
        self, services: HighAvailabilityServices, provide: Callable[[tuple[Path, ...]], None]
    ) -> None:
        """Decide, before any job is recovered, whether main is called. `provide` ships files to later workers.

        ConfigurationError if the storage holds jobs of another application; CheckpointError if it cannot be read.
        """
        self._epoch = services.election.epoch
        store = services.application_store
        self._run_before = newest = store.newest()
        found = services.job_result_store.recover()
        stored = _stored_jobs(services)
        found.leave_out_before({one.graph.job_id: one.epoch for one in stored})
        results = {**found.clean, **found.dirty}
        goes_on = newest is not None and newest.end is None
        for one in stored:
            job_id = one.graph.job_id
            is_own = newest is not None and newest.owns(job_id)
            if not goes_on and not is_own:
                raise self._strange_job(one.graph)
            if job_id in results:
                continue
            if is_own and not (goes_on and ApplicationRun.epoch_of(job_id) == 0):
                self._give_up(services, one.graph)
            else:
                provide(python_files(Settings(one.graph.settings)))
        if newest is not None and (newest.end is None or newest.end.epoch in self._stood_by):
            run = newest
        else:
            run = store.begin(1 if newest is None else newest.number + 1)
            self._discard_results(services)
        self._run = run
        self._results = {
            job_id: entry.result for job_id, entry in results.items() if run.owns(job_id)
        }
        if run.end is not None:
            services.before_release = self._clean_up
            _LOG.warning("main ended under an earlier driver, with code %d", run.end.exit_code)
        elif goes_on:
            _LOG.warning("main is called again: run %d of the application goes on", run.number)
        self._services = services

    def main_begins(self, host: "SparkHost") -> None:
        """Start the watch that interrupts main if this driver cannot continue."""
        self._host = host
        start_thread("headrace-application", self._watch)

    def main_is_over(self) -> None:
        """Stop the watch: main has returned or was interrupted."""
        self._is_main_over.set()

    def main_failed(self, error: BaseException) -> None:
        """Record an error that main raised; an error because nobody led is not an end of main."""
        if isinstance(error, NotLeadingError | LeadershipLostError):
            self.loss = self.loss or DriverLeftError(f"main failed with: {error}")

    def main_ended(self, exit_code: int) -> int:
        """Record the end of main, which ends the run and its jobs; return the exit code of this driver.

        EXIT_LEFT if main ended because of its driver. Main thread, before the cluster is closed.
        """
        self._is_main_over.set()
        services, host = self._services, self._host
        if self.loss is not None:
            return EXIT_LEFT
        assert services is not None and host is not None, "main has begun"
        try:
            problem = self._problem(host)
            if problem is None and has_jvm_ended():
                problem = DriverLeftError(_NO_JVM)
            if problem is not None:
                self.loss = problem
                return EXIT_LEFT
            services.election.validate()
            end = services.application_store.end(self.run, ApplicationEnd(exit_code, self._epoch))
        except HeadraceError as error:
            self.loss = self.loss or error
            _LOG.error("the end of main, with code %d, could not be recorded: %s", exit_code, error)
            return EXIT_LEFT
        services.before_release = self._clean_up
        dispatcher = host.handle.dispatcher
        try:
            jobs = host.handle.call(dispatcher.list_jobs(), _ASK_TIMEOUT_S)
            for job in jobs:
                if not job.status.is_terminal_state():
                    _LOG.warning("job '%s' (%s) ends with the application", job.name, job.job_id)
            host.handle.call(dispatcher.shut_down_cluster(), _ASK_TIMEOUT_S)
        except (HeadraceError, TimeoutError) as error:
            _LOG.warning(
                "jobs of the application could not be ended; its next run ends them: %s", error
            )
        return end.exit_code

    def submit(self, job_graph: JobGraph, host: "SparkHost", timeout_s: float) -> JobClient:
        """Submit the job of the next execution, or find it, running or ended, from an earlier driver.

        UnrecoverableJobError if no later leader could continue it.
        """
        refuse_unrecoverable(job_graph)
        with self._lock:
            self._execution_count += 1
            number = self._execution_count
        # What it collects goes to the main of one driver: it begins again with the next one's.
        epoch, dispatcher = 0, host.handle.dispatcher
        if _collects(job_graph):
            assert self._services is not None, "it has led"
            election = self._services.election
            epoch = election.epoch
            dispatcher = cast(DispatcherGateway, CollectingDispatcher(dispatcher, election, epoch))
        job_graph = msgspec.structs.replace(job_graph, job_id=self.run.job_id(number, epoch))
        return self._submit_or_find(number, job_graph, host.handle, dispatcher, timeout_s)

    def _submit_or_find(
        self,
        number: int,
        job_graph: JobGraph,
        handle: "ClusterHandle",
        dispatcher: DispatcherGateway,
        timeout_s: float,
    ) -> JobClient:
        job_id = job_graph.job_id
        result = self._results.get(job_id)
        if result is not None:
            _LOG.warning(
                "execution %d is job '%s' (%s), which was %s under an earlier driver of the application",
                number, result.name, job_id, result.status.name,
            )  # fmt: skip
            if result.name != job_graph.name:
                _warn_of_other_program(number, job_id, f"was called '{result.name}'")
            dispatcher = cast(DispatcherGateway, _EndedJob(dispatcher, result))
            return JobClient(job_id, dispatcher, handle.loop)
        client = JobClient(job_id, dispatcher, handle.loop, outlives_leader=True)
        failure_count = 0
        while True:
            try:
                plan = handle.call(dispatcher.request_job_plan(job_id), _ASK_TIMEOUT_S)
            except UnknownJobError:
                pass
            except (NotLeadingError, LeadershipLostError):
                self._wait_for_leadership()
                continue
            else:
                _LOG.warning(
                    "execution %d is job '%s' (%s), which continues", number, plan.name, job_id
                )
                if plan != JobPlan.of(job_graph):
                    _warn_of_other_program(number, job_id, "was submitted with another graph")
                return client
            try:
                handle.submit(job_graph, timeout_s)
            except _PASSING as error:
                failure_count += isinstance(error, CheckpointStorageError)
                if failure_count > _STORAGE_FAILURES_MAX:
                    raise
                # It may have been stored all the same: then it is found.
                _LOG.warning("job '%s' is submitted again: %s", job_graph.name, error)
                self._wait_for_leadership()
            else:
                return client

    def _wait_for_leadership(self) -> None:
        """Wait a little for the next term of this process. DriverLeftError if there is none."""
        self._is_main_over.wait(_LOOK_S)
        if self.loss is not None:
            raise self.loss

    def _watch(self) -> None:
        """Interrupt main if this driver cannot continue; on a thread of its own."""
        assert self._host is not None, "main has begun"
        while not self._is_main_over.wait(_LOOK_S):
            problem = self.loss or self._problem(self._host)
            if problem is None:
                continue
            self._leave(problem)
            if not self._is_main_over.wait(_GRACE_S):
                _LOG.critical(
                    "main did not return within %g s of its interruption: the process ends now",
                    _GRACE_S,
                )
                os._exit(EXIT_LEFT)
            return

    def _problem(self, host: "SparkHost") -> BaseException | None:
        """Return the reason why this driver cannot continue, or None."""
        services = self._services
        assert services is not None, "it has led"
        election = services.election
        if election.failure is not None:
            return DriverLeftError(f"it can no longer lead ({election.failure})")
        # The next term of this process, which nobody else has led before, goes on where this one was.
        if election.epoch > self._epoch + 1:
            return DriverLeftError(later_text(election.epoch - 1))
        self._epoch = election.epoch
        if host.has_lost_session:
            return None  # main has stopped it: its next job is refused
        if host.failure is not None:
            return DriverLeftError(str(host.failure))
        return DriverLeftError(_NO_JVM) if has_jvm_ended(0) else None

    def _leave(self, error: BaseException) -> None:
        if self.loss is None:
            self.loss = error
            if not self._is_main_over.is_set():
                end_program(str(error))

    def _give_up(self, services: HighAvailabilityServices, graph: JobGraph) -> None:
        """Have the next Dispatcher delete a job that nobody waits for, with its checkpoints."""
        result = JobResult(graph.job_id, graph.name, JobStatus.CANCELED, 0, {})
        services.job_result_store.create_dirty(JobResultEntry(result), self._epoch)

    def _clean_up(self) -> None:
        """Delete the results of jobs of a run that has ended, after the cluster in this process is closed."""
        services = self._services
        assert services is not None, "it has led"
        try:
            services.election.validate()
            left = [
                str(one.graph.job_id)
                for one in _stored_jobs(services)
                if self.run.owns(one.graph.job_id)
            ]
            if left:
                _LOG.warning(
                    "the next run of the application ends and deletes jobs %s", ", ".join(left)
                )
            self._discard_results(services)
        except HeadraceError as error:
            _LOG.warning(
                "results of jobs could not be deleted; the next run deletes them: %s", error
            )

    def _discard_results(self, services: HighAvailabilityServices) -> None:
        """Delete the results of this run's jobs, and those left over from the run before."""
        runs = [run for run in (self._run_before, self._run) if run is not None]
        if self._keeps_results:
            return
        for job_id in services.job_result_store.recover().clean:
            if any(run.owns(job_id) for run in runs):
                services.job_result_store.discard(job_id)

    def _strange_job(self, graph: JobGraph) -> ConfigurationError:
        return ConfigurationError(
            CLUSTER_ID.key,
            self._cluster,
            f"its storage has job '{graph.name}' ({graph.job_id}), which does not belong to this application: a "
            f"session and a program, or two programs, cannot share a cluster id; choose another id for this one",
        )


def _stored_jobs(services: HighAvailabilityServices) -> list[StoredJobGraph]:
    """Return the stored jobs that can be read; the next Dispatcher ends the others."""
    leadership = services.election.leadership
    assert leadership is not None, "it has led"
    found = services.job_graph_store.recover(leadership.epoch, leadership.confirm)
    return [one for one in found if isinstance(one, StoredJobGraph)]


class CollectingDispatcher:
    """A Dispatcher that returns collected results only within one term of this process's leadership.

    The JobMaster of a later term does not have results that an earlier one had not handed over yet, and counts anew.
    """

    def __init__(
        self, dispatcher: DispatcherGateway, election: LeaderElectionService, epoch: int
    ) -> None:
        self._dispatcher: Final = dispatcher
        self._election: Final = election
        self._epoch: Final = epoch

    async def fetch_collected_results(
        self, job_id: JobId, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        """Return collected results as a Dispatcher does. NotLeadingError if the answer may be from a later term."""
        found = await self._dispatcher.fetch_collected_results(
            job_id, operator_id, offset, max_piece_count
        )
        # A later term sets its number before its first answer.
        if self._election.epoch != self._epoch:
            raise NotLeadingError("the driver lost the leadership while main collected results")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)


class _EndedJob:
    """A Dispatcher that returns the result of one job that has ended, however long ago."""

    def __init__(self, dispatcher: DispatcherGateway, result: JobResult) -> None:
        self._dispatcher: Final = dispatcher
        self._result: Final = result

    async def request_job_status(self, _job_id: JobId) -> JobStatus:
        return self._result.status

    async def await_job_end(self, _job_id: JobId, _wait_max_ms: int) -> JobStatus:
        return self._result.status

    async def request_job_result(self, _job_id: JobId) -> JobResult:
        return self._result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dispatcher, name)


def refuse_unrecoverable(job_graph: JobGraph) -> None:
    """Raise UnrecoverableJobError for a job that the next leader could not continue."""
    if runs_in_batch(Settings(job_graph.settings)):
        raise UnrecoverableJobError(
            job_graph.name,
            "BATCH mode has no checkpoints, and its stages run in the driver's own Spark; run it in STREAMING mode, "
            "in which a bounded job gives the same final results",
        )
    operators = [each for vertex in job_graph.vertices for each in vertex.operators]
    for each in operators:
        if each.coordinator.startswith(_OF_DATAFRAMES):
            raise UnrecoverableJobError(
                job_graph.name,
                f"'{each.name}' is a DataFrame in the Spark application of one driver, and is lost with the driver; "
                f"write it to files and read them with a FileSource",
            )
    if _collects(job_graph):
        producers = Counter(
            [edge.source_id for vertex in job_graph.vertices for edge in vertex.chain_edges]
            + [edge.source_operator_id for edge in job_graph.edges]
        )
        for each in operators:
            if not producers[each.operator_id] and each.coordinator != COLLECT_COORDINATOR:
                raise UnrecoverableJobError(
                    job_graph.name,
                    f"it collects results for the main of one driver and would start again with the next driver, so "
                    f"that '{each.name}' would write a second time; collect in a separate job, after execute() of "
                    f"the sinks",
                )


def _collects(job_graph: JobGraph) -> bool:
    return any(
        each.coordinator == COLLECT_COORDINATOR
        for vertex in job_graph.vertices
        for each in vertex.operators
    )


def _warn_of_other_program(number: int, job_id: JobId, difference: str) -> None:
    _LOG.warning(
        "execution %d of main differs from that of the earlier main: job %s %s; the earlier job is used. Main must "
        "submit the same jobs each time it is called: end the application before you change its program",
        number,
        job_id,
        difference,
    )
