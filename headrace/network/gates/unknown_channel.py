"""UnknownInputChannel: holds the place of a channel whose producer has not been placed yet.

Source: Flink UnknownInputChannel.
"""

from headrace.network.gates.gate import ChannelElement, InputChannel
from headrace.network.gates.in_flight_input import CapturedBatch


class UnknownInputChannel:
    """See InputChannel. Nothing comes of it; what is asked of it is done by its successor."""

    is_local = False

    def __init__(self) -> None:
        self._task_events: list[bytes] = []
        self._in_flight_rows: int | None = None
        self._is_requested = False

    @property
    def queued_count(self) -> int:
        return 0

    @property
    def queued_bytes(self) -> int:
        return 0

    @property
    def has_priority_event(self) -> bool:
        return False

    def request(self) -> None:
        self._is_requested = True

    def poll(self) -> ChannelElement | None:
        return None

    def resume(self) -> None:
        raise AssertionError("an unknown channel has delivered nothing that blocks")

    def prioritise(self, sequence: int) -> None:
        raise AssertionError("an unknown channel has announced nothing")

    def start_capture(self, checkpoint_id: int) -> None:
        """See InputChannel. Its gate begins anew with its successor."""

    def stop_capture(self, checkpoint_id: int) -> list[CapturedBatch]:
        return []

    def acknowledge_all_data(self) -> None:
        raise AssertionError("an unknown channel has delivered no data")

    def request_in_flight_rows(self, in_flight_rows: int) -> None:
        self._in_flight_rows = in_flight_rows

    def send_task_event(self, event: bytes) -> None:
        self._task_events.append(event)

    def close(self) -> None:
        pass

    def hand_over(self, successor: InputChannel) -> None:
        """Do with `successor`, which took this channel's place, what was done with this one.

        Where the gate is closed meanwhile, the successor was closed in this channel's stead, and ignores the rest.
        """
        if self._is_requested:
            successor.request()
        if self._in_flight_rows is not None:
            successor.request_in_flight_rows(self._in_flight_rows)
        for event in self._task_events:
            successor.send_task_event(event)
