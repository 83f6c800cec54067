"""RestDispatcher: the Dispatcher of a cluster in another process, called over REST.

Requests of Flink's clients use Flink's routes. Answers that JSON cannot represent fully are messages of the gateways
(`headrace.rest.client_protocol`), and errors arrive as the classes that they have in the cluster.
Source: Flink RestClusterClient.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from headrace.api.client.job_client import ClusterClosedError
from headrace.client.leader_rest_client import LeaderRestClient
from headrace.core.barriers import SavepointFormatType
from headrace.core.clock import doubling_pauses
from headrace.core.errors import DECODE_ERRORS
from headrace.core.ids import BlobKey, ClusterDataSetId, JobId, OperatorId, UniqueId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import system_random
from headrace.core.threads import BlockingRunner, run_in_thread
from headrace.gateways.checkpoint_statistics import (
    CheckpointConfiguration,
    CheckpointDetails,
    CheckpointStatistics,
)
from headrace.gateways.dispatcher import DispatcherGateway, JobOverview, JobResult
from headrace.gateways.errors import (
    BlobCorruptedError,
    BlobNotFoundError,
    BlobTransferError,
    DuplicateJobSubmissionError,
)
from headrace.gateways.job_master import CollectedResults, JobConfiguration, JobDetails
from headrace.gateways.messages import (
    Acknowledge,
    DataSetInfo,
    OperatorDescription,
    StateReadRequest,
    StoredCheckpoint,
    SubtaskState,
)
from headrace.graph.job_graph import JobGraph, OffloadedGraph, blob_text
from headrace.graph.job_plan import JobPlan
from headrace.rest.client import OnUnready, RestClient, path_of
from headrace.rest.client_errors import (
    ClusterEndedError,
    RestRefusedError,
    RestUnreachableError,
)
from headrace.rest.client_protocol import MESSAGE, OperationOutcome

T = TypeVar("T")

_AT_ONCE_MAX: Final = 16
"""Number of concurrent requests, each on a thread of its own; others are queued."""
_CHUNK_BYTES: Final = 1 << 20
_FAILURES_MAX: Final = 5
"""Failures in a row after which a transfer, or the wait for an operation, is given up."""
_PAUSES_S: Final = 0.05, 1.0
"""The first and the longest pause between two requests for the end of an operation."""
_READ_MARGIN_S: Final = 60.0
_OK: Final = 200


class ClusterLostError(ClusterClosedError):
    """Raised if the cluster did not answer for so long that the end of its job is unknown."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"how the job ended is unknown: {reason}")


class RestDispatcher(DispatcherGateway):
    """Client of a Dispatcher, used on one event loop. Requests block, and run on threads of `run_blocking`."""

    def __init__(
        self, rest: RestClient | LeaderRestClient, run_blocking: BlockingRunner = run_in_thread
    ) -> None:
        self._rest: Final = rest
        self._outlives_leader: Final = isinstance(rest, LeaderRestClient)
        self._run_blocking: Final = run_blocking
        self._turns: Final = asyncio.Semaphore(_AT_ONCE_MAX)
        # For jobs whose end is awaited in several requests: each continues where the last one stopped.
        self._pauses_s: Final[dict[JobId, Iterator[float]]] = {}

    async def submit(self, job: OffloadedGraph) -> None:
        """Upload a job's large payloads, then submit the job. BlobTransferError, and the Dispatcher's errors."""
        leaders_lost = 0
        while True:
            await self._put_blobs(job)
            try:
                await self._submit(job.graph, is_repeated=leaders_lost > 0)
                return
            except BlobNotFoundError:
                # The leader that had the blobs has ended, and the next one keeps no blobs of a job that was not stored.
                leaders_lost += 1
                if leaders_lost > _FAILURES_MAX:
                    raise

    async def submit_job(self, graph: JobGraph) -> Acknowledge:
        return await self._submit(graph)

    async def _submit(self, graph: JobGraph, *, is_repeated: bool = False) -> Acknowledge:
        """Submit the graph; repeat if the answer was lost.

        A job that exists already is an error unless `is_repeated`.
        """
        content, lost_count = msgspec.msgpack.encode(graph), 0

        def repeat() -> None:
            nonlocal is_repeated
            is_repeated = True

        while True:
            try:
                return await self._message(Acknowledge, "POST", "/jobs", content, on_unready=repeat)
            except DuplicateJobSubmissionError:
                if not is_repeated:
                    raise
                return Acknowledge()
            except RestUnreachableError as error:
                # Each leader may die of something else; all that none is there was waited for already.
                lost_count += 1
                if lost_count > _FAILURES_MAX or error.attempts > 1:
                    raise
                repeat()

    async def _put_blobs(self, job: OffloadedGraph) -> None:
        for key, content in job.blobs.items():
            try:
                await self._put_blob(job.graph.job_id, key, content)
            except (BlobCorruptedError, RestUnreachableError) as error:
                raise BlobTransferError(
                    f"job '{job.graph.name}' ({job.graph.job_id}) was not submitted, because "
                    f"{blob_text(job.graph, key)} could not be uploaded to the cluster: {error}"
                ) from error

    async def _put_blob(self, job_id: JobId, key: BlobKey, content: bytes) -> None:
        view, offset, failure_count = memoryview(content), 0, 0
        path = path_of("jobs", job_id.hex(), "blobs", key.digest.hex())
        while True:
            chunk = bytes(view[offset : offset + _CHUNK_BYTES])
            try:
                answer = await self._exchange(
                    "PUT",
                    path,
                    chunk,
                    content_type="application/octet-stream",
                    query={"size": key.size_bytes, "offset": offset},
                )
            except (BlobCorruptedError, RestUnreachableError) as error:
                failure_count += 1
                if failure_count > _FAILURES_MAX:
                    raise
                if isinstance(error, BlobCorruptedError):
                    offset = 0
                await asyncio.sleep(_PAUSES_S[0])
                continue
            received = int(self._decoded("PUT", path, answer, dict[str, int])["received"])
            if received >= key.size_bytes:
                return
            if received <= offset:
                failure_count += 1
                if failure_count > _FAILURES_MAX:
                    raise BlobCorruptedError(str(job_id), str(key))
            offset = received

    async def list_jobs(self) -> tuple[JobOverview, ...]:
        return await self._message(tuple[JobOverview, ...], "GET", "/jobs/overview")

    async def cancel_job(self, job_id: JobId, is_forced: bool = False) -> Acknowledge:
        force = "true" if is_forced else None
        await self._json("PATCH", _job(job_id), query={"mode": "cancel", "force": force})
        return Acknowledge()

    async def report_client_heartbeat(
        self, job_id: JobId, expired_timestamp_ms: int
    ) -> Acknowledge:
        body = {"expiredTimestamp": expired_timestamp_ms}
        await self._json("PATCH", _job(job_id, "clientHeartbeat"), body)
        return Acknowledge()

    async def trigger_checkpoint(self, job_id: JobId, is_full: bool = False) -> int:
        body = {"checkpointType": "FULL" if is_full else "CONFIGURED"}
        path = _job(job_id, "checkpoints")
        return (await self._operation(path, path, body)).checkpoint_id

    async def trigger_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        format_type: SavepointFormatType,
    ) -> str:
        body = {"target-directory": target_directory or None, "formatType": format_type.name}
        path = _job(job_id, "savepoints")
        return (await self._operation(path, path, body)).location

    async def stop_with_savepoint(
        self,
        job_id: JobId,
        target_directory: str,
        is_drained: bool,
        format_type: SavepointFormatType,
    ) -> str:
        body = {
            "targetDirectory": target_directory or None,
            "drain": is_drained,
            "formatType": format_type.name,
        }
        outcome = await self._operation(_job(job_id, "stop"), _job(job_id, "savepoints"), body)
        return outcome.location

    async def request_job_status(self, job_id: JobId) -> JobStatus:
        return JobStatus[(await self._json("GET", _job(job_id, "status")))["status"]]

    async def await_job_end(self, job_id: JobId, wait_max_ms: int) -> JobStatus:
        """Ask repeatedly, because a waiting request would hold one of the cluster's few connections."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_max_ms / 1000
        while True:
            try:
                status = await self.request_job_status(job_id)
            except RestUnreachableError as error:
                # Asking has been repeated already for as long as `rest.retry.max-attempts` says.
                if isinstance(error, ClusterEndedError) or error.attempts > 1:
                    raise ClusterLostError(str(error)) from error
                raise
            left_s = deadline_s - loop.time()
            if self._outlives_leader and status is JobStatus.SUSPENDED:
                # The leader that says so is about to end; the job goes on under the next one.
                status = JobStatus.RECONCILING
            if status.is_terminal_state():
                self._pauses_s.pop(job_id, None)
                return status
            if left_s <= 0:
                return status
            pauses_s = self._pauses_s.setdefault(job_id, doubling_pauses(*_PAUSES_S))
            await asyncio.sleep(min(next(pauses_s), left_s))

    async def request_job_details(self, job_id: JobId, metrics_age_max_ms: int = 0) -> JobDetails:
        """Return the job as it was at most `web.refresh-interval` ago, whatever `metrics_age_max_ms` is."""
        return await self._message(JobDetails, "GET", _job(job_id))

    async def request_job_plan(self, job_id: JobId) -> JobPlan:
        return await self._message(JobPlan, "GET", _job(job_id, "plan"))

    async def request_job_configuration(self, job_id: JobId) -> JobConfiguration:
        return await self._message(JobConfiguration, "GET", _job(job_id, "config"))

    async def request_accumulators(self, job_id: JobId) -> dict[str, float]:
        return await self._message(dict[str, float], "GET", _job(job_id, "accumulators"))

    async def request_checkpoint_statistics(self, job_id: JobId) -> CheckpointStatistics:
        return await self._message(CheckpointStatistics, "GET", _job(job_id, "checkpoints"))

    async def request_checkpoint_details(
        self, job_id: JobId, checkpoint_id: int
    ) -> CheckpointDetails | None:
        path = _job(job_id, "checkpoints", "details", str(checkpoint_id))
        return await self._message(CheckpointDetails | None, "GET", path)

    async def request_checkpoint_configuration(self, job_id: JobId) -> CheckpointConfiguration:
        path = _job(job_id, "checkpoints", "config")
        return await self._message(CheckpointConfiguration, "GET", path)

    async def request_operators(self, job_id: JobId) -> tuple[OperatorDescription, ...]:
        path = _job(job_id, "operators")
        return await self._message(tuple[OperatorDescription, ...], "GET", path)

    async def request_operator(self, job_id: JobId, named: str) -> OperatorDescription:
        path = _job(job_id, "operators")
        (found,) = await self._message(
            tuple[OperatorDescription], "GET", path, query={"named": named}
        )
        return found

    async def request_latest_checkpoint(self, job_id: JobId) -> StoredCheckpoint | None:
        path = _job(job_id, "checkpoints", "latest")
        return await self._message(StoredCheckpoint | None, "GET", path)

    async def read_state(self, job_id: JobId, request: StateReadRequest) -> SubtaskState:
        timeout_s = request.query.duration_ms_max / 1000 + _READ_MARGIN_S
        content = msgspec.msgpack.encode(request)
        path = _job(job_id, "state")
        return await self._message(SubtaskState, "POST", path, content, timeout_s=timeout_s)

    async def request_job_result(self, job_id: JobId) -> JobResult:
        status = await self.await_job_end(job_id, 0)
        while not status.is_terminal_state():
            status = await self.await_job_end(job_id, 60_000)
        return await self._message(JobResult, "GET", _job(job_id, "execution-result"))

    async def fetch_collected_results(
        self, job_id: JobId, operator_id: OperatorId, offset: int, max_piece_count: int
    ) -> CollectedResults:
        path = _job(job_id, "operators", operator_id.hex(), "collected")
        return await self._message(
            CollectedResults, "GET", path, query={"offset": offset, "max": max_piece_count}
        )

    async def shut_down_cluster(self) -> Acknowledge:
        await self._json("DELETE", "/cluster")
        return Acknowledge()

    async def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """Return the data sets that jobs left in the cluster."""
        return await self._message(tuple[DataSetInfo, ...], "GET", "/datasets")

    async def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """Delete a data set in the cluster that a job left, or is going to leave."""
        path = path_of("datasets", data_set.data_set_id.hex())
        await self._message(Acknowledge, "DELETE", path, query={"job": data_set.job_id.hex()})

    async def slots_available(self) -> int:
        """Return the number of free slots of the cluster's TaskManagers."""
        return int((await self._json("GET", "/overview"))["slots-available"])

    async def cluster_settings(self) -> dict[str, str]:
        """Return the settings of the cluster, secrets masked."""
        path = "/jobmanager/config"
        answer = await self._exchange("GET", path)
        found = self._decoded("GET", path, answer, list[dict[str, str]])
        return {each["key"]: each["value"] for each in found}

    async def _operation(
        self, path: str, status_path: str, body: Mapping[str, Any]
    ) -> OperationOutcome:
        """Start an operation, and wait for its end; raises the operation's error."""
        # With an id of our own a request that is sent twice begins one operation.
        trigger_id = UniqueId.generate(system_random()).hex()
        await self._json("POST", path, {**body, "triggerId": trigger_id})
        pauses_s, failure_count = doubling_pauses(*_PAUSES_S), 0
        while True:
            try:
                outcome = await self._message(
                    OperationOutcome, "GET", f"{status_path}/{trigger_id}"
                )
                failure_count = 0
                if outcome.is_done:
                    return outcome
            except RestUnreachableError:
                failure_count += 1
                if failure_count > _FAILURES_MAX:
                    raise
            await asyncio.sleep(next(pauses_s))

    async def _message(
        self,
        message_type: type[T] | Any,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        timeout_s: float | None = None,
        query: Mapping[str, object] | None = None,
        on_unready: OnUnready | None = None,
    ) -> Any:
        answer = await self._exchange(
            method, path, content, timeout_s=timeout_s, query=query, on_unready=on_unready
        )
        try:
            return msgspec.msgpack.decode(answer, type=message_type)
        except DECODE_ERRORS as error:
            problem = (
                f"this version of Headrace does not understand the answer ({error}): is {self._rest.address} the REST "
                "address of a cluster of the same version?"
            )
            raise RestRefusedError(method, path, _OK, [problem]) from error

    async def _json(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        answer = await self._exchange(
            method, path, content, content_type="application/json", query=query
        )
        return self._decoded(method, path, answer, dict[str, Any])

    def _decoded(self, method: str, path: str, answer: bytes, answer_type: type[T]) -> T:
        try:
            return msgspec.json.decode(answer, type=answer_type)
        except DECODE_ERRORS as error:
            problem = f"the answer does not fit the request: is {self._rest.address} the REST address of a cluster?"
            raise RestRefusedError(method, path, _OK, [problem]) from error

    async def _exchange(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        content_type: str = MESSAGE,
        timeout_s: float | None = None,
        query: Mapping[str, object] | None = None,
        on_unready: OnUnready | None = None,
    ) -> bytes:
        async with self._turns:
            return await self._run_blocking(
                f"headrace-rest {method}",
                lambda: self._rest.exchange(
                    method,
                    path,
                    content,
                    content_type=content_type,
                    timeout_s=timeout_s,
                    query=query,
                    on_unready=on_unready,
                ),
            )


def _job(job_id: JobId, *parts: str) -> str:
    return path_of("jobs", job_id.hex(), *parts)
