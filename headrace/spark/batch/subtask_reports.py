"""Reports of subtasks on Spark's executors to the job's driver: their states, and the records read and written.

The last report of a subtask comes with its success, as an update of a Spark accumulator. Earlier reports are
best effort: lines of a named pipe if driver and workers share a host, else messages over the network.
"""

import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from headrace.core.clock import SystemClock
from headrace.core.ids import JobId, JobVertexId
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.subtask_report import SubtaskReport, SubtaskReportGateway
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.service import RpcService
from headrace.spark.batch.driver_connection import DriverConnection, driver_connection
from headrace.spark.workers.worker_output import LinePipe

_INTERVAL_MS: Final = 500.0
_REMOTE_INTERVAL_MS: Final = 5_000.0
"""Interval of reports over the network, where the workers of many hosts may report, in ms."""


TakeReport = Callable[[SubtaskReport], None]
_DECODER: Final = msgspec.json.Decoder(SubtaskReport)


class _Forwarded(AccumulatorParam[list[bytes]]):
    """Accumulator that passes added values to `take` in the driver; elsewhere Spark collects them."""

    def __init__(self, take: TakeReport | None) -> None:
        self.take = take

    def zero(self, value: list[bytes]) -> list[bytes]:
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:
        if self.take is None:
            return value1 + value2
        for content in value2:
            self.take(_DECODER.decode(content))
        return value1

    def __getstate__(self) -> dict[str, Any]:
        return {"take": None}


class ReportReceiver(RpcEndpoint, SubtaskReportGateway):
    """Receives reports over the network in the driver, for all jobs; reports of ended jobs are ignored."""

    def __init__(self, rpc_service: RpcService) -> None:
        super().__init__(rpc_service, rpc_service.create_endpoint_name("subtask-reports"))
        self._jobs: Final[dict[JobId, TakeReport]] = {}

    def follow(self, job_id: JobId, take: TakeReport) -> None:
        """Pass the reports of a job to `take`, on the main thread."""
        self._jobs[job_id] = take

    def forget(self, job_id: JobId) -> None:
        """Ignore later reports of a job."""
        self._jobs.pop(job_id, None)

    def report_subtask(self, job_id: JobId, report: SubtaskReport) -> None:
        take = self._jobs.get(job_id)
        if take is not None:
            take(report)


class ReportChannel:
    """The driver's end of one job's reports. `take` is called on threads of its own.

    `pipe_path`, and `address` of a ReportReceiver: empty if there is none.
    """

    def __init__(
        self, context: SparkContext, job_id: JobId, take: TakeReport, pipe_path: str, address: str
    ) -> None:
        self._param: Final = _Forwarded(take)
        self._pipe: Final = (
            LinePipe(Path(pipe_path), _decoding(take), "headrace-batch-reports")
            if pipe_path
            else None
        )
        accumulator = context.accumulator([], self._param)
        self.sender: Final = ReportSender(accumulator, job_id, pipe_path, address)
        """Accumulator, pipe and address for the stages of the job."""

    def close(self) -> None:
        """Stop receiving reports."""
        self._param.take = lambda _: None
        if self._pipe is not None:
            self._pipe.close()


def _decoding(take: TakeReport) -> Callable[[bytes], None]:
    """Return a function that decodes whole lines and passes the reports to `take`."""

    def take_lines(lines: bytes) -> None:
        for line in lines.splitlines():
            take(_DECODER.decode(line))

    return take_lines


class ReportSender:
    """Accumulator, pipe and address to which the tasks of a stage report; travels in their closure."""

    def __init__(
        self, accumulator: "Accumulator[list[bytes]]", job_id: JobId, pipe_path: str, address: str
    ) -> None:
        self.accumulator: Final = accumulator
        self.job_id: Final = job_id
        self.pipe_path: Final = pipe_path
        self.address: Final = address


class SubtaskReporter:
    """Reports on one attempt, in its Spark task.

    `counts`: records in and out, metrics, and the names of those that are counters of the user's functions.
    """

    def __init__(
        self,
        sender: ReportSender,
        vertex_id: JobVertexId,
        subtask_index: int,
        counts: Callable[[], tuple[int, int, dict[str, float], tuple[str, ...]]],
    ) -> None:
        context = TaskContext.get()
        assert context is not None, "a stage runs in a task of Spark's"
        self._attempt_number: Final = context.attemptNumber()
        self._sender: Final = sender
        self._vertex_id: Final = vertex_id.hex()
        self._subtask_index: Final = subtask_index
        self._counts: Final = counts
        self._clock: Final = SystemClock()
        self._started_ms: Final = self._clock.now_ms()
        self._host: Final = socket.gethostname()
        self._bytes_in = self._bytes_out = 0
        self._pipe = -1
        self._driver: DriverConnection | None = driver_connection() if sender.address else None
        self._interval_ms: Final = _REMOTE_INTERVAL_MS if sender.address else _INTERVAL_MS
        if sender.pipe_path:
            # Not waiting for a reader: where there is none, the driver is gone.
            with contextlib.suppress(OSError):
                self._pipe = os.open(sender.pipe_path, os.O_WRONLY | os.O_NONBLOCK)
        self._next_ms = 0.0
        self._tell()

    def reading(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `batches`, which the task reads, and count them."""
        for batch in batches:
            self._bytes_in += batch.nbytes
            self._tell()
            yield batch

    def writing(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield `batches`, which the task writes, and report its success after the last one."""
        for batch in batches:
            self._bytes_out += batch.nbytes
            self._tell()
            yield batch
        report = self._report(ExecutionState.FINISHED)
        self._sender.accumulator.add([msgspec.json.encode(report)])

    def failed(self) -> None:
        """Report that the attempt has failed."""
        self._write(self._report(ExecutionState.FAILED))

    def close(self) -> None:
        """Close the pipe."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)

    def _tell(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._is_heard and now_ms >= self._next_ms:
            self._next_ms = now_ms + self._interval_ms
            self._write(self._report(ExecutionState.RUNNING))

    @property
    def _is_heard(self) -> bool:
        return self._pipe >= 0 or self._driver is not None

    def _write(self, report: SubtaskReport) -> None:
        if not self._is_heard:
            return
        # Short enough to be written at once or not at all; the last report comes another way, with the metrics.
        short = msgspec.structs.replace(report, metrics={}, counters=())
        if self._driver is not None:
            self._driver.tell(self._sender.address, self._sender.job_id, short)
            return
        line = msgspec.json.encode(short) + b"\n"
        with contextlib.suppress(OSError):
            os.write(self._pipe, line)

    def _report(self, state: ExecutionState) -> SubtaskReport:
        records_in, records_out, metrics, counters = self._counts()
        return SubtaskReport(
            self._vertex_id,
            self._subtask_index,
            self._attempt_number,
            state,
            self._host,
            self._started_ms,
            self._clock.now_ms(),
            records_in,
            records_out,
            self._bytes_in,
            self._bytes_out,
            metrics,
            counters,
        )
