"""LocalInputChannel: reads a subpartition of this process without copying. Source: Flink LocalInputChannel."""

from collections.abc import Callable
from typing import Final

from headrace.core.barriers import CheckpointBarrier
from headrace.core.clock import Cancellable
from headrace.core.elements import EndOfPartition
from headrace.core.shuffle_descriptors import InputChannelDescriptor
from headrace.network.errors import NetworkError, PartitionNotFoundError, copy_of
from headrace.network.gates.gate import ChannelElement
from headrace.network.gates.in_flight_input import CapturedBatch
from headrace.network.gates.partition_requests import (
    CheckProducer,
    PartitionRequestBackoff,
    ProducerVerdict,
)
from headrace.network.partitions.partition_manager import ResultPartitionManager
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    ResultSubpartitionView,
    Stalled,
)
from headrace.network.sessions.transport import Transport

UNLIMITED_CREDIT: Final = 1 << 62


class LocalInputChannel:
    """Reads a subpartition of this process: batches are handed over without copying or serialising them."""

    is_local = True

    def __init__(
        self,
        descriptor: InputChannelDescriptor,
        partitions: ResultPartitionManager,
        transport: Transport,
        retry: PartitionRequestBackoff,
        notify: Callable[[], None],
        check_producer: CheckProducer,
    ) -> None:
        self._check_producer = check_producer
        self._partition_id: Final = descriptor.shuffle.partition_id
        self._index = descriptor.subpartition_index
        self._owner = str(descriptor.shuffle.location.resource_id)
        self._partitions = partitions
        self._transport = transport
        self._timeout_ms = retry.total_ms
        self._notify = notify
        self._view: ResultSubpartitionView | None = None
        # Requests made before the producer exists; they are sent once it does.
        self._in_flight_rows: int | None = None
        self._error: NetworkError | None = None
        self._timer: Cancellable | None = None
        self._is_closed = False
        # Task's thread only: queued elements belong to the producer, which captures them.
        self._capture_id = self._barrier_id = 0
        self._captured: list[CapturedBatch] = []

    @property
    def queued_count(self) -> int:
        # Read once: a cancelling thread may remove the view while metrics are read.
        view = self._view
        return 0 if view is None else view.queued_count

    @property
    def queued_bytes(self) -> int:
        view = self._view
        return 0 if view is None else view.queued_bytes

    @property
    def has_priority_event(self) -> bool:
        view = self._view
        return view is not None and view.has_priority_event

    def request(self) -> None:
        """Start reading, or wait for a producer that is still being deployed."""
        if not self._attach():
            self._transport.post(self._wait_for_producer)

    def poll(self) -> ChannelElement | None:
        if self._error is not None:
            raise copy_of(self._error)
        if self._view is None:
            return None
        element = self._view.poll(UNLIMITED_CREDIT)
        if element is None:
            return None
        assert not isinstance(element, Stalled)
        if isinstance(element, DataElement):
            if element.lease is not None:
                element.lease.release()
            sealed = element.sealed
            if self._barrier_id < self._capture_id:
                self._captured.append(CapturedBatch(sealed.arrow, sealed.markers))
            return sealed
        if isinstance(element.event, EndOfPartition):
            self.close()
        elif isinstance(element.event, CheckpointBarrier):
            self._barrier_id = max(self._barrier_id, element.event.checkpoint_id)
        return element.event

    def resume(self) -> None:
        view = self._view
        if view is not None:
            view.resume()

    def prioritise(self, sequence: int) -> None:
        """Not supported: the producer is in this process and lets its barriers overtake elements by itself."""
        raise AssertionError("a local channel announces no barriers")

    def start_capture(self, checkpoint_id: int) -> None:
        self._capture_id, self._captured = checkpoint_id, []

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        if checkpoint_id != self._capture_id:
            return []
        self._capture_id = 0
        captured, self._captured = self._captured, []
        return captured

    def acknowledge_all_data(self) -> None:
        view = self._view
        if view is not None:
            view.acknowledge_all_data()

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        self._in_flight_rows = in_flight_rows
        view = self._view
        if view is not None:
            self._tell_wish(view)

    def close(self) -> None:
        self._is_closed = True
        view, self._view = self._view, None
        if view is not None:
            view.release()
        else:
            self._transport.post(self._stop_waiting)

    def _attach(self) -> bool:
        try:
            view = self._partitions.create_view(
                self._partition_id, self._index, self._notify, LOCAL_SEGMENT_BYTES
            )
        except PartitionNotFoundError:
            return False
        except NetworkError as error:
            self._error = copy_of(error)
            self._notify()
            return True
        self._view = view
        self._tell_wish(view)
        if self._is_closed:
            self.close()
        else:
            self._notify()
        return True

    def _tell_wish(self, view: ResultSubpartitionView) -> None:
        """Send the wanted rows in flight, again if they change meanwhile, so that the newest value is sent last.

        Any thread.
        """
        announced = None
        while (wished := self._in_flight_rows) is not None and wished != announced:
            view.notify_in_flight_rows(wished)
            announced = wished

    def _wait_for_producer(self) -> None:
        if not self._is_closed:
            self._timer = self._transport.call_later(self._timeout_ms, self._not_found)
            self._partitions.watch(self._partition_id, self._registered)

    def _registered(self) -> None:
        self._transport.post(self._attach_late)

    def _attach_late(self) -> None:
        if self._view is None and not self._is_closed and self._attach():
            self._stop_waiting()

    def _not_found(self) -> None:
        self._stop_waiting()
        self._check_producer(self._partition_id, self._producer_checked)

    def _producer_checked(self, verdict: ProducerVerdict) -> None:
        """Fail the channel unless it is being cancelled: the time for requests is over, so none is repeated.

        Any thread.
        """
        if verdict is not ProducerVerdict.CANCEL and not self._is_closed:
            self._error = PartitionNotFoundError(str(self._partition_id), self._owner)
            self._notify()

    def _stop_waiting(self) -> None:
        self._partitions.unwatch(self._partition_id, self._registered)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
