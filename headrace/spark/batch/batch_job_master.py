"""BatchJobMaster: the endpoint of one job in BATCH mode, which runs it on a Spark thread and reports its status.

The Dispatcher, and so clients, REST and the archive, use it like any JobMaster. Calls that BATCH mode does not
support, such as savepoints, raise an error that names them.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec

from headrace.checkpoint.options import INTERVAL as CHECKPOINTING_INTERVAL
from headrace.cluster.blob.blob_client import release_blobs
from headrace.cluster.dispatcher.job_archive import ArchivedJob
from headrace.cluster.error_reports import error_info_of
from headrace.cluster.job_master.checkpointing.protocol.coordinator_configuration import (
    describe_checkpointing,
)
from headrace.cluster.job_master.coordinators.collect_coordinator import (
    COLLECT_BUFFER_SIZE,
    CollectCoordinator,
)
from headrace.cluster.job_master.coordinators.operator_coordinator import CoordinatorContext
from headrace.cluster.job_master.job_details import describe_configuration, stated_max_parallelism
from headrace.core.barriers import SavepointFormatType
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.ids import (
    ExecutionAttemptId,
    ExecutionVertexId,
    JobMasterId,
    JobVertexId,
    OperatorId,
)
from headrace.core.lifecycle import ExecutionState, JobStatus, check_job_transition
from headrace.core.threads import run_in_thread, start_thread
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import JobOverview, JobResult
from headrace.gateways.ended_job import EndedJob
from headrace.gateways.errors import NothingCollectedError
from headrace.gateways.job_master import (
    CollectedResults,
    ExceptionInfo,
    JobConfiguration,
    JobDetails,
    JobGateway,
    RootExceptionInfo,
)
from headrace.gateways.job_metrics import JobMetrics, job_metrics
from headrace.gateways.messages import (
    Acknowledge,
    ErrorInfo,
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import ChainedOperator, JobGraph
from headrace.graph.job_plan import JobPlan, job_type_of
from headrace.rpc.endpoint import FencedRpcEndpoint
from headrace.rpc.service import RpcService
from headrace.spark.batch.batch_commits import CommitTurn
from headrace.spark.batch.batch_host import BatchHost
from headrace.spark.batch.batch_progress import BatchProgress
from headrace.spark.batch.batch_support import COLLECT_COORDINATOR
from headrace.spark.batch.stage_body import failure_in
from headrace.spark.batch.stage_run import StageRun
from headrace.spark.batch.subtask_reports import ReportReceiver, SubtaskReport
from headrace.spark.session.spark_errors import root_message, unusable_interpreter
from headrace.task.batch.stage_rows import StageReport

_LOG: Final = logging.getLogger(__name__)
_COLLECTED_MAX: Final = 1 << 62
_COLLECTED_WAIT_S: Final = 0.2
_ENDS: Final = {JobStatus.CANCELLING: JobStatus.CANCELED, JobStatus.FAILING: JobStatus.FAILED}
"""Statuses of a job that is being ended, and the final status of each."""
_LAST_STATES: Final = {
    JobStatus.FINISHED: ExecutionState.FINISHED,
    JobStatus.FAILED: ExecutionState.CANCELED,
    JobStatus.CANCELED: ExecutionState.CANCELED,
}


class BatchJobMaster(FencedRpcEndpoint[JobMasterId], JobGateway):
    """JobMaster of one BATCH job. `on_ended` is called once, on the main thread, when everything is done.

    `is_of_program`: True if the graph comes from this process, with all its functions, and its modules are the
    program's. `receiver`: receives reports from workers on other hosts.

    It only serves clients: it has no TaskManagers, and requests nothing from the ResourceManager.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        job_master_id: JobMasterId,
        graph: JobGraph,
        host: BatchHost,
        submitted_ms: int,
        *,
        is_of_program: bool,
        on_ended: Callable[[ArchivedJob], None],
        receiver: ReportReceiver | None = None,
    ) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("jobmanager"), job_master_id)
        self._graph: Final = graph
        self._host: Final = host
        self._on_ended: Final = on_ended
        self._is_of_program: Final = is_of_program
        self._receiver: Final = receiver
        now_ms = self.clock.now_ms()
        self._status = JobStatus.CREATED
        self._times_ms = {JobStatus.INITIALIZING.name: submitted_ms, JobStatus.CREATED.name: now_ms}
        self._progress: Final = BatchProgress(graph, now_ms)
        self._phase_since_ms = now_ms
        self._failure: ErrorInfo | None = None
        self._exceptions: tuple[RootExceptionInfo, ...] = ()
        self._collected: Final = {
            operator.operator_id: self._collect_coordinator(operator, vertex.parallelism)
            for vertex in graph.vertices
            for operator in vertex.operators
            if operator.coordinator == COLLECT_COORDINATOR
        }
        self._configuration: Final = describe_configuration(graph, self.settings)
        settings = {**graph.settings, CHECKPOINTING_INTERVAL.key: "0 ms"}
        self._checkpoints: Final = describe_checkpointing(self.settings.with_values(settings))
        self._turn: Final = CommitTurn()
        self._has_ended: Final = asyncio.Event()
        self._stages: StageRun | None = None

    async def on_start(self) -> None:
        """Begin to run the job."""
        self._become(JobStatus.RUNNING)
        if self._receiver is not None:
            self._receiver.follow(self._graph.job_id, self._report)
        self._stages = StageRun(
            self._graph,
            self._host,
            self.settings.with_values(dict(self._host.memory)),
            self._turn,
            is_of_program=self._is_of_program,
            report_address="" if self._receiver is None else self._receiver.address,
            take_report=lambda report: self.run_async(lambda: self._report(report)),
            on_finished=lambda reports: self.run_async(lambda: self._finished(reports)),
            on_stopped=lambda error: self.run_async(lambda: self._stopped(error)),
        )
        self._stages.start()

    def on_fatal_error(self, error: BaseException) -> None:
        """Fail the job with this error, not with that of its stages, which are cancelled.

        A job that is committing its output ends with the result of the commit, if that comes in time.
        """
        if self._status is JobStatus.RUNNING and self._forestalls("fail"):
            self._failed(error_info_of(error, f"the JobMaster of job '{self._graph.name}'"), None)
            self._become(JobStatus.FAILING)
        super().on_fatal_error(error)

    async def on_stop(self) -> None:
        """End the job's stages, if they still run."""
        if self._stages is not None:
            await run_in_thread("headrace-batch-stop", self._stages.end_and_wait)
        if self._receiver is not None:
            self._receiver.forget(self._graph.job_id)
        await release_blobs(self._graph, self._host.blob_server)

    # Clients

    async def fetch_collected_results(
        self, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        """Return collected records, which are available when the job has ended; waits up to 0.2 s for that."""
        if operator_id not in self._collected:
            raise NothingCollectedError(str(self._graph.job_id), str(operator_id))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), _COLLECTED_WAIT_S)
        return self._collected[operator_id].fetch(offset, max_piece_count)

    async def request_job_details(self, metrics_age_max_ms: int = 0) -> JobDetails:
        return self._details

    async def request_job_plan(self) -> JobPlan:
        return JobPlan.of(self._graph)

    async def request_job_configuration(self) -> JobConfiguration:
        return self._configuration

    async def request_accumulators(self) -> dict[str, float]:
        return self._progress.accumulators

    async def request_checkpoint_statistics(self) -> CheckpointStatistics:
        return CheckpointStatistics(is_enabled=False)

    async def request_checkpoint_details(self, checkpoint_id: int) -> CheckpointDetails | None:
        return None

    async def request_checkpoint_configuration(self) -> CheckpointConfiguration:
        return self._checkpoints

    async def request_operators(self) -> tuple[OperatorDescription, ...]:
        self._refuse("queryable state")

    async def request_operator(self, named: str) -> OperatorDescription:
        self._refuse("queryable state")

    async def request_latest_checkpoint(self) -> StoredCheckpoint | None:
        return None

    async def read_state(self, request: StateReadRequest) -> SubtaskState:
        self._refuse("queryable state")

    async def trigger_checkpoint(self, is_full: bool = False) -> int:
        self._refuse("checkpoints")

    async def trigger_savepoint(
        self,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        self._refuse("savepoints")

    async def stop_with_savepoint(
        self,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        self._refuse("savepoints")

    async def cancel(self, is_forced: bool = False) -> Acknowledge:
        self._cancel()
        return Acknowledge()

    # The Dispatcher, on the same thread

    @property
    def deletion_left(self) -> None:
        """Return no paths: a job in BATCH mode has no checkpoints to delete."""

    def cancel_by_dispatcher(self) -> None:
        """Cancel the job because the cluster is closing."""
        self.run_async(self._cancel)

    def fail_for_good(self, error: BaseException) -> None:
        """Fail the job, which cannot run on this cluster any more."""
        if self._status.is_globally_terminal_state() or self._status in _ENDS:
            return
        if not self._forestalls("fail"):
            return
        self._failed(error_info_of(error), None)
        self._become(JobStatus.FAILING)
        self._end_stages("headrace-batch-fail")

    @property
    def status(self) -> JobStatus:
        """The job's status."""
        return self._status

    @property
    def overview(self) -> JobOverview:
        """The job's line in a list."""
        graph, times = self._graph, self._times_ms
        has_ended = self._status.is_globally_terminal_state()
        return JobOverview(
            graph.job_id,
            graph.name,
            self._status,
            times[JobStatus.CREATED.name],
            times[self._status.name] if has_ended else -1,
            max(times[self._status.name], self._progress.changed_ms),
            job_type_of(graph),
            self._progress.counts,
            stated_max_parallelism(graph),
        )

    @property
    def metrics(self) -> JobMetrics:
        """The job's own metrics."""
        graph = self._graph
        return JobMetrics(graph.job_id, graph.name, job_metrics(self._details, self.clock.now_ms()))

    @property
    def _details(self) -> JobDetails:
        graph = self._graph
        return JobDetails(
            graph.job_id,
            graph.name,
            self._status,
            dict(self._times_ms),
            self._progress.vertices(),
            self._failure,
            self._progress.summary if self._status is JobStatus.RUNNING else "",
            exceptions=self._exceptions,
            max_parallelism=stated_max_parallelism(graph),
            job_type=job_type_of(graph),
            deployment_phase=self._progress.phase,
            deployment_since_ms=self._phase_since_ms,
        )

    def _refuse(self, what: str) -> NoReturn:
        raise ProgramError(
            f"job '{self._graph.name}' runs in BATCH mode, which has no {what}: Spark reruns failed tasks, and only "
            f"the state of a few keys is kept at a time"
        )

    # The life of the job

    def _become(self, status: JobStatus) -> None:
        check_job_transition(self._status, status)
        self._status = status
        self._times_ms[status.name] = self.clock.now_ms()
        why = "" if self._failure is None else f": {self._failure.text}"
        _LOG.info("job %s (%s) is %s%s", self._graph.name, self._graph.job_id, status.name, why)

    def _cancel(self) -> None:
        if self._status is JobStatus.RUNNING and self._forestalls("be cancelled"):
            self._become(JobStatus.CANCELLING)
            self._end_stages("headrace-batch-cancel")

    def _end_stages(self, thread_name: str) -> None:
        if self._stages is not None:
            start_thread(thread_name, self._stages.end)

    def _forestalls(self, what: str) -> bool:
        """Return whether the job can still be ended before it commits."""
        can = self._turn.forestall_commits()
        if not can:
            _LOG.warning(
                "job %s (%s) was to %s, but is committing its output: it ends after the commit, and does not retry "
                "a failed one",
                self._graph.name,
                self._graph.job_id,
                what,
            )
        return can

    def _report(self, report: SubtaskReport) -> None:
        phase = self._progress.phase
        self._progress.report(report)
        if self._progress.phase is not phase:
            self._phase_since_ms = self.clock.now_ms()

    def _finished(self, reports: list[StageReport]) -> None:
        vertex_of = {
            one.operator_id: vertex for vertex in self._graph.vertices for one in vertex.operators
        }
        for report in reports:
            assert report.operator_id is not None, "rows of a collect sink"
            vertex_id = vertex_of[report.operator_id].vertex_id
            subtask = ExecutionVertexId(vertex_id, report.subtask_index)
            attempt_id = ExecutionAttemptId(self._graph.job_id, subtask, 0)
            for event in report.collected:
                self._collected[report.operator_id].handle_event(attempt_id, event)
        self._end(JobStatus.FINISHED)

    def _stopped(self, error: BaseException) -> None:
        """Handle the end of the stages before the job was done, because of an error or on demand."""
        if self._status is JobStatus.RUNNING:
            told = failure_in(str(error))
            info = told_of(error, self._graph.python_executable) if told is None else told.error
            if told is None or not told.vertex_id:
                self._failed(info, None)
            else:
                self._failed(info, (JobVertexId.from_hex(told.vertex_id), told.subtask_index))
            self._become(JobStatus.FAILING)
        self._end(JobStatus.FAILED)

    def _failed(self, error: ErrorInfo, place: tuple[JobVertexId, int] | None) -> None:
        now_ms, task = self.clock.now_ms(), ""
        if place is not None:
            self._progress.fail(*place, error, now_ms)
            task = self._graph.vertex(place[0]).subtask_name(place[1])
        self._failure = error
        self._exceptions = (RootExceptionInfo(ExceptionInfo(error, now_ms, task)),)

    def _end(self, status: JobStatus) -> None:
        # The last stage may have ended in between.
        status = _ENDS.get(self._status, status)
        self._progress.end(_LAST_STATES[status], self.clock.now_ms())
        self._become(status)
        for coordinator in self._collected.values():
            coordinator.end()
        self._has_ended.set()
        graph, times = self._graph, self._times_ms
        result = JobResult(
            graph.job_id,
            graph.name,
            status,
            times[status.name] - times[JobStatus.CREATED.name],
            self._progress.accumulators,
            self._failure,
        )
        ended = EndedJob(
            self._details,
            result,
            self.overview,
            JobPlan.of(graph),
            self._configuration,
            CheckpointStatistics(is_enabled=False),
            self._checkpoints,
        )
        self._on_ended(ArchivedJob(ended, self._collected))

    def _collect_coordinator(
        self, operator: ChainedOperator, parallelism: int
    ) -> CollectCoordinator:
        """Return a coordinator that holds collected records for the client, without a bound."""
        settings = {
            **self._graph.settings,
            CHECKPOINTING_INTERVAL.key: "0 ms",
            COLLECT_BUFFER_SIZE.key: str(_COLLECTED_MAX),
        }
        context = CoordinatorContext(
            job_id=self._graph.job_id,
            operator_id=operator.operator_id,
            operator_name=operator.name,
            parallelism=parallelism,
            settings=Settings(settings),
            send_event=lambda _subtask, _payload: None,
            run_async=self.run_async,
            fail_job=self.fail_for_good,
        )
        return CollectCoordinator(context, b"")


def told_of(error: BaseException, interpreter: str) -> ErrorInfo:
    """Return a Spark error in a form for users; a job that names an interpreter gets a hint about it."""
    text = root_message(error)
    unusable = unusable_interpreter(text, interpreter) if interpreter else None
    if unusable is not None:
        return error_info_of(unusable)
    return msgspec.structs.replace(error_info_of(error), text=text)
