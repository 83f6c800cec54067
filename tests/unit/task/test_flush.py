"""The buffer timeout: how long rows and watermarks stay with the task that emitted them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.graph.job_graph import PartitionerKind
from headrace.network.partitions.result_subpartition import DataElement
from headrace.task.chain.outputs import NetworkTarget
from headrace.task.mailbox import MailboxTimers
from headrace.task.metrics import TaskCounters
from tests.unit.network.writer_edge import PLENTY, Edge, edge, keyed


class Target:
    """A network target on a manual clock, stepped a millisecond at a time as its mailbox would."""

    def __init__(
        self,
        timeout_ms: int,
        latency_target: str = "0 ms",
        kind: PartitionerKind = PartitionerKind.RESCALE,
    ) -> None:
        self.copies = 2 if kind is PartitionerKind.BROADCAST else 1
        self.clock = ManualClock()
        self.timers = MailboxTimers(self.clock)
        self.edge: Edge = edge(
            2,
            kind,
            timeout_ms,
            overdraft=10_000,
            headrace_latency_target=latency_target,
        )
        self.target = NetworkTarget(
            self.edge.writer, self.timers, TaskCounters(), lambda error: error
        )
        self.emitted_ms: list[int] = []

    def emit(self) -> None:
        self.target.receive(keyed(len(self.emitted_ms), 1))
        self.emitted_ms.append(self.timers.now_ms())

    def advance(self, duration_ms: int) -> list[tuple[int, int]]:
        """Let time pass; return each row that came out with how long it had waited."""
        waited = self._read()
        for _ in range(duration_ms):
            self.clock.advance_ms(1)
            self.timers.fire_due()
            waited += self._read()
        return waited

    def _read(self) -> list[tuple[int, int]]:
        waited: list[tuple[int, int]] = []
        for view in self.edge.views:
            while isinstance(element := view.poll(PLENTY), DataElement):
                assert element.lease is not None and element.sealed.arrow is not None
                element.lease.release()
                for row in element.sealed.arrow.column(0).to_pylist():
                    waited.append((row, self.timers.now_ms() - self.emitted_ms[row]))
        return waited


KINDS = [PartitionerKind.RESCALE, PartitionerKind.HASH, PartitionerKind.BROADCAST]


@pytest.mark.parametrize("kind", KINDS)
@given(
    timeout_ms=st.sampled_from([0, 1, 10, 100]), pauses=st.lists(st.integers(0, 150), max_size=15)
)
def test_no_row_is_kept_longer_than_the_timeout(
    kind: PartitionerKind, timeout_ms: int, pauses: list[int]
) -> None:
    made = Target(timeout_ms, kind=kind)
    waited: list[tuple[int, int]] = []
    for pause_ms in pauses:
        made.emit()
        made.emit()
        waited += made.advance(pause_ms)
    waited += made.advance(timeout_ms + 1)
    assert sorted(row for row, _ in waited) == sorted(list(range(2 * len(pauses))) * made.copies)
    assert all(0 <= wait_ms <= timeout_ms for _, wait_ms in waited)


@pytest.mark.parametrize("kind", KINDS)
def test_a_watermark_is_not_kept_longer_either(kind: PartitionerKind) -> None:
    made = Target(10, kind=kind)
    made.target.receive_watermark(5)
    made.target.receive_status(True)
    assert made.edge.views[0].queued_count == 0
    made.advance(9)
    assert made.edge.notified == []
    made.clock.advance_ms(1)
    made.timers.fire_due()
    assert made.edge.notified == [0, 1]


def test_an_output_that_has_nothing_to_say_sets_no_timer() -> None:
    made = Target(10)
    made.emit()
    made.advance(10)
    assert made.timers.delay_to_next_ms() is None
    made = Target(-1)
    made.emit()
    assert made.timers.delay_to_next_ms() is None


def test_with_a_latency_target_rows_are_kept_as_long_as_its_governor_says() -> None:
    made = Target(10, latency_target="50 ms")
    made.emit()
    assert made.advance(39) == []
    assert made.advance(1) == [(0, 40)]


def test_a_latency_target_takes_the_place_of_no_timeout_too() -> None:
    made = Target(0, latency_target="50 ms")
    made.emit()
    assert made.advance(39) == []
    assert made.advance(1) == [(0, 40)]
