"""Collected records: returns the results of a job to the program that ran it."""

import io
import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import end_interrupted_job
from headrace.core.clock import SystemClock, doubling_pauses
from headrace.core.errors import ErrorDomain, HeadraceError
from headrace.core.ids import OperatorId
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.gateways.job_master import CollectedResults

_PIECES_PER_FETCH: Final = 64
_CLOCK: Final = SystemClock()
_PAUSES_S: Final = 0.002, 0.1


class CollectedRecordsLostError(HeadraceError):
    """Raised if another JobMaster takes over a job.

    It has none of the records that its predecessor had not delivered yet.
    """

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, job_id: str) -> None:
        super().__init__(
            f"collected records of job {job_id} that its client had not fetched are lost, because the job goes on "
            f"under another "
            "leader, which has none of it: cancel the job and collect again, or write the records to a sink"
        )


class CloseableIterator:
    """Iterator over the records of a running job, in the order in which they reached the collect sink.

    Use it in `with`, or close it, to end a job that has not ended by itself. `next` raises the error of a job that
    fails, and CollectedRecordsLostError if another leader has taken over the job on a cluster with high availability.
    """

    def __init__(self, client: JobClient, operator_id: OperatorId, batch_type: BatchType) -> None:
        self._client = client
        self._operator_id = operator_id
        self._batch_type = batch_type
        self._offset = 0
        self._coordinator_id: str | None = None
        self._rows: deque[Any] = deque()
        # Received batches of which no record was returned yet.
        self._batches: deque[RecordBatch] = deque()
        # Pieces of batches whose last one has not come, by subtask and attempt.
        self._incomplete: dict[tuple[int, int], list[bytes]] = {}
        self._has_all = False  # the cluster has nothing that is not here
        self._has_ended = False
        self._pause = threading.Event()  # never set: a wait that Ctrl-C interrupts

    def get_job_client(self) -> JobClient:
        """Return the client of the job that produces the records."""
        return self._client

    def next(self) -> Any:
        """Return the next record; StopIteration after the last one."""
        return self.__next__()

    def take(self, limit: int) -> list[Any]:
        """Return the next records, at most `limit`."""
        taken: list[Any] = []
        while len(taken) < limit:
            try:
                taken.append(self.__next__())
            except StopIteration:
                break
        return taken

    def take_batches(
        self, limit: int | None = None, timeout_s: float | None = None
    ) -> list[RecordBatch]:
        """Return the next records in the batches in which they arrived: at most `limit`, or all.

        After `timeout_s` seconds, return those that have arrived until then. Do not call it after `next`, which may
        have begun a batch.
        """
        assert not self._rows
        deadline_ns = None if timeout_s is None else _CLOCK.monotonic_ns() + int(timeout_s * 1e9)
        taken: list[RecordBatch] = []
        missing = limit
        while missing is None or missing > 0:
            batch = self._next_batch(deadline_ns)
            if batch is None:
                break
            if missing is not None:
                if batch.num_rows > missing:
                    self._batches.appendleft(batch.slice(missing))
                    batch = batch.slice(0, missing)
                missing -= batch.num_rows
            taken.append(batch)
        return taken

    def close(self) -> None:
        """End the job if it is still running, and wait until it has ended. Idempotent."""
        if self._has_ended:
            return
        self._has_ended = True
        self._rows.clear()
        self._batches.clear()
        try:
            if not self._client.get_job_status().result().is_terminal_state():
                self._client.cancel().result()
                self._client.get_job_execution_result().exception()
        except HeadraceError:
            # A job that the cluster no longer knows needs no cancelling.
            pass

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self._rows:
            batch = self._next_batch()
            if batch is None:
                raise StopIteration
            self._rows.extend(batch.rows())
        return self._rows.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error_type is KeyboardInterrupt and not self._has_ended:
            # A function that does not return must not hold the program up for minutes.
            end_interrupted_job(self._client)
        self.close()

    def _next_batch(self, deadline_ns: int | None = None) -> RecordBatch | None:
        """Wait for the next batch; return None after the last one or once the deadline has passed."""
        pauses_s = doubling_pauses(*_PAUSES_S)
        while not self._batches:
            if self._has_ended:
                return None
            if self._has_all:
                self._end()
            elif not self._fetch():
                if deadline_ns is not None and _CLOCK.monotonic_ns() > deadline_ns:
                    return None
                self._pause.wait(next(pauses_s))
        return self._batches.popleft()

    def _fetch(self) -> bool:
        """Request more; return whether records or the end arrived."""
        answer = self._client.fetch_collected_results(
            self._operator_id, self._offset, _PIECES_PER_FETCH
        )
        try:
            results = answer.result()
        except HeadraceError:
            # The job may have failed before it had a coordinator: its own error says more than ours.
            if self._client.get_job_status().result().is_terminal_state():
                self._end()
            raise
        self._take_over(results)
        self._has_all = results.is_finished
        return bool(results.pieces) or results.is_finished

    def _end(self) -> None:
        """Wait for the job's end; raise its error unless it finished."""
        self._has_ended = True
        self._client.get_job_execution_result().result()

    def _take_over(self, results: CollectedResults) -> None:
        if self._coordinator_id not in (None, results.coordinator_id):
            raise CollectedRecordsLostError(str(self._client.get_job_id()))
        self._coordinator_id = results.coordinator_id
        for piece in results.pieces[max(0, self._offset - results.offset) :]:
            attempt = (piece.subtask_index, piece.attempt_number)
            content = self._incomplete.setdefault(attempt, [])
            content.append(piece.content)
            if piece.is_last:
                del self._incomplete[attempt]
                self._batches.extend(decode_collected(b"".join(content), self._batch_type))
        self._offset = max(self._offset, results.offset + len(results.pieces))


def decode_collected(batch: bytes, batch_type: BatchType) -> list[RecordBatch]:
    """Decode the records that one fetch returned, an Arrow IPC stream in the wire form of batches."""
    with pa.ipc.open_stream(io.BytesIO(batch)) as reader:
        return [RecordBatch.from_arrow(batch_type, arrow) for arrow in reader]
