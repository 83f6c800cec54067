"""The latency governor: rows wait about as long as the target says, and batches are as large as that allows."""

from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.graph.job_graph import PartitionerKind
from headrace.metrics import names
from headrace.network.flow.buffer_debloater import DEBLOAT_ENABLED, BufferDebloater
from headrace.network.flow.latency_governor import (
    BUDGET_SHARE,
    HOLD_MIN_MS,
    PERIOD_NS,
    BatchChoice,
    FlushObserved,
    LatencyGovernor,
    budget_of,
)
from headrace.network.metrics import register_task_metrics
from headrace.network.writers.partition_buffer import ROWS_PER_CHANNEL
from headrace.task.input.gate_debloating import GateDebloating
from headrace.task.mailbox import MailboxTimers
from tests.unit.network.exchange import gate, numbers
from tests.unit.network.metric_figures import Figures
from tests.unit.network.simulated import SimulatedCluster
from tests.unit.network.writer_edge import Edge, edge, keyed

ROWS_MAX = 16384
STEP_MS = 1.0
QUEUE_MAX = 10


def feed(
    governor: LatencyGovernor, rows_per_ms: float, queued_count: int, late_ms: float = 0.0
) -> BatchChoice:
    """What it settles on where all stays as it is for three seconds."""
    for flush in range(1, 151):
        now_ns = 20_000_000 * flush
        seen = FlushObserved(
            now_ns,
            round(rows_per_ms * now_ns / 1e6),
            queued_count,
            governor.choice.hold_ms + late_ms,
        )
        governor.flushed(seen)
    return governor.choice


def test_with_empty_queues_rows_are_held_for_most_of_the_target() -> None:
    choice = feed(LatencyGovernor(50, 2, ROWS_MAX), rows_per_ms=100, queued_count=0)
    assert choice.hold_ms == pytest.approx(BUDGET_SHARE * 50)
    # Only time decides, so that a burst is not cut into crumbs.
    assert choice.rows == ROWS_MAX


@pytest.mark.parametrize(("target_ms", "hold_ms"), [(2, 0.4), (5, 1), (10, 6), (20, 16), (50, 40)])
def test_a_short_target_leaves_what_the_way_takes_and_little_to_hold_rows(
    target_ms: float, hold_ms: float
) -> None:
    choice = feed(LatencyGovernor(target_ms, 2, ROWS_MAX), rows_per_ms=100, queued_count=0)
    assert choice.hold_ms == pytest.approx(hold_ms)


def test_behind_a_queue_batches_are_made_smaller_by_as_much() -> None:
    choice = feed(LatencyGovernor(50, 2, ROWS_MAX), 100, queued_count=9)
    assert choice.hold_ms == pytest.approx(BUDGET_SHARE * 50 / 10, rel=0.01)
    # What comes for one of two channels in that time, a quarter more.
    assert choice.rows == pytest.approx(50 * choice.hold_ms * 1.25, rel=0.05)


def test_what_flushes_come_late_is_taken_off_what_rows_are_held() -> None:
    choice = feed(LatencyGovernor(50, 1, ROWS_MAX), 100, 0, late_ms=15)
    assert choice.hold_ms == pytest.approx(BUDGET_SHARE * 50 - 15, rel=0.01)


def test_late_flushes_make_a_short_hold_no_shorter_than_what_batches_cost() -> None:
    # Else each portion would go alone where the task is busy, and keep it busy.
    choice = feed(LatencyGovernor(5, 2, ROWS_MAX), 100, 0, late_ms=15)
    assert choice.hold_ms == HOLD_MIN_MS


def test_a_single_late_flush_is_forgotten_within_a_second() -> None:
    governor = LatencyGovernor(50, 1, ROWS_MAX)
    governor.flushed(FlushObserved(0, 0, 0, 0))
    assert governor.flushed(FlushObserved(PERIOD_NS, 1000, 0, 60)).hold_ms == pytest.approx(20)
    governor.flushed(FlushObserved(101 * PERIOD_NS, 101_000, 0, 0))
    assert governor.choice.hold_ms > 0.98 * BUDGET_SHARE * 50


SEEN = st.tuples(
    st.floats(PERIOD_NS / 1e6, 60_000), st.integers(0, 10**9), st.integers(0, 50), st.floats(0, 1e5)
)


@given(st.floats(0.1, 60_000), st.integers(1, 4096), st.lists(SEEN, max_size=30))
@example(0.5, 1, [(10.0, 0, 50, 0.0)] * 3)
def test_whatever_is_seen_the_choice_stays_within_its_bounds(
    target_ms: float, channel_count: int, seen: list[tuple[float, int, int, float]]
) -> None:
    governor = LatencyGovernor(target_ms, channel_count, ROWS_MAX)
    now_ns = row_count = 0
    for elapsed_ms, rows, queued_count, waited_ms in seen:
        now_ns, row_count = now_ns + int(elapsed_ms * 1e6), row_count + rows
        if not governor.is_due(now_ns):
            continue
        choice = governor.flushed(FlushObserved(now_ns, row_count, queued_count, waited_ms))
        assert min(HOLD_MIN_MS, budget_of(target_ms)) <= choice.hold_ms + 1e-9
        assert choice.hold_ms <= budget_of(target_ms)
        assert 1 <= choice.rows <= ROWS_MAX


class Pipe:
    """One channel on a clock of milliseconds: `rows_per_ms` come where there is room, a consumer takes batch by batch.

    A batch costs the consumer `batch_ms` and `row_ms` for each of its rows.
    """

    def __init__(self, target_ms: float, rows_per_ms: int, batch_ms: float, row_ms: float) -> None:
        self.governor = LatencyGovernor(target_ms, 1, ROWS_MAX)
        self.rows_per_ms, self.batch_ms, self.row_ms = rows_per_ms, batch_ms, row_ms
        self.now_ms = 0.0
        self.row_count = 0
        self.pending: list[float] = []  # the moment at which each row came
        self.held_since_ms: float | None = None
        self.queue: deque[list[float]] = deque()
        self.free_ms = 0.0
        self.waits: list[float] = []

    def run(self, duration_ms: int) -> None:
        for _ in range(duration_ms):
            self.now_ms += STEP_MS
            self._consume()
            if len(self.queue) < QUEUE_MAX:
                self.pending += [self.now_ms] * self.rows_per_ms
                self.row_count += self.rows_per_ms
                self.held_since_ms = self.held_since_ms or self.now_ms
            if len(self.pending) >= self.governor.choice.rows:
                self._seal()
            # As a task's timer: from the first row on, whatever left before it fires.
            since_ms = self.held_since_ms
            if since_ms and self.now_ms - since_ms >= self.governor.choice.hold_ms:
                self._observe(self.now_ms - since_ms)
                self.held_since_ms = None
                if self.pending:
                    self._seal()

    def _observe(self, waited_ms: float) -> None:
        now_ns = int(self.now_ms * 1e6)
        if self.governor.is_due(now_ns):
            self.governor.flushed(FlushObserved(now_ns, self.row_count, len(self.queue), waited_ms))

    def _seal(self) -> None:
        self.queue.append(self.pending)
        self.pending = []

    def _consume(self) -> None:
        while self.queue and self.free_ms <= self.now_ms:
            rows = self.queue.popleft()
            started_ms = max(self.free_ms, self.now_ms - STEP_MS)
            self.waits += [started_ms - came_ms for came_ms in rows]
            self.free_ms = started_ms + self.batch_ms + self.row_ms * len(rows)


@pytest.mark.parametrize("rows_per_ms", [1, 20, 60])
def test_below_what_the_consumer_manages_no_row_waits_longer_than_the_target(
    rows_per_ms: int,
) -> None:
    pipe = Pipe(target_ms=50, rows_per_ms=rows_per_ms, batch_ms=0.5, row_ms=0.01)
    pipe.run(1000)
    pipe.waits.clear()
    pipe.run(500)
    # And not much less either: whoever waits longer makes larger batches.
    assert 25 <= max(pipe.waits) <= 50 + STEP_MS


def test_a_consumer_that_is_too_slow_gets_smaller_batches_so_that_its_queue_is_short() -> None:
    pipe = Pipe(target_ms=50, rows_per_ms=200, batch_ms=0.1, row_ms=0.01)
    pipe.run(2000)
    pipe.waits.clear()
    pipe.run(500)
    assert max(pipe.waits) <= 1.5 * 50
    # The consumer does 100 rows per ms without the cost of batches: nearly all of that is kept.
    assert len(pipe.waits) >= 0.8 * 500 / 0.01


def test_a_slow_function_gets_few_rows_at_once_so_that_few_wait() -> None:
    # 5 ms for each row, of which ten times as many would come.
    pipe = Pipe(target_ms=100, rows_per_ms=2, batch_ms=0.3, row_ms=5)
    # What was in the queue before anything was known takes some seconds.
    pipe.run(7000)
    pipe.waits.clear()
    pipe.run(1000)
    assert max(pipe.waits) <= 1.2 * 100


@pytest.mark.parametrize(("channel_count", "least_ms"), [(1, 1), (4, 1), (40, 10), (4096, 40)])
def test_behind_a_queue_rows_are_held_for_what_a_batch_for_each_channel_costs(
    channel_count: int, least_ms: float
) -> None:
    choice = feed(LatencyGovernor(50, channel_count, ROWS_MAX), 100, queued_count=100)
    assert choice.hold_ms == pytest.approx(least_ms)


def governed(channel_count: int = 1, kind: PartitionerKind = PartitionerKind.RESCALE) -> Edge:
    return edge(channel_count, kind, timeout_ms=100, headrace_latency_target="50 ms")


def flush_after(made: Edge, rows: int, duration_ms: float) -> None:
    made.writer.emit(numbers(0, rows))
    made.clock.advance_ms(duration_ms)
    made.writer.flush_all()


def test_a_writer_holds_rows_as_its_governor_chose_and_not_as_its_timeout_says() -> None:
    made = governed()
    assert made.writer.hold_ms == BUDGET_SHARE * 50
    flush_after(made, 10, 40)
    made.read()
    flush_after(made, 10, 60)
    # 20 ms late.
    assert made.writer.hold_ms == pytest.approx(20)


def test_a_writer_hands_over_what_its_governor_takes_for_a_batch() -> None:
    made = governed()
    for _ in range(8):
        flush_after(made, 100, 40)
    assert made.writer.governor is not None
    rows = made.writer.governor.choice.rows
    assert 1 < rows < 100
    made.read()
    made.writer.emit(numbers(0, rows - 1))
    assert made.read() == []
    made.writer.emit(numbers(0, 1))
    assert made.read() == [[*range(rows - 1), 0]]


def test_rows_of_a_keyed_edge_are_split_when_the_governor_has_enough_of_them() -> None:
    made = governed(channel_count=2, kind=PartitionerKind.HASH)
    for _ in range(8):
        made.writer.emit(keyed(0, 100))
        made.clock.advance_ms(40)
        made.writer.flush_all()
    assert made.writer.governor is not None
    rows = made.writer.governor.choice.rows
    assert 1 < rows < ROWS_PER_CHANNEL / 2
    made.read(0)
    made.read(1)
    made.writer.emit(keyed(0, rows - 1))
    assert [*made.read(0), *made.read(1)] == []
    made.writer.emit(keyed(0, 3 * rows))
    assert [*made.read(0), *made.read(1)]


def test_the_longest_of_all_queues_counts() -> None:
    made = governed(channel_count=2)
    for _ in range(8):
        flush_after(made, 2, 40)
        made.read(0)
    assert made.writer.hold_ms < BUDGET_SHARE * 50 / 2


@pytest.mark.parametrize(("timeout_ms", "target"), [(-1, "50 ms"), (100, "0 ms")])
def test_without_a_target_or_where_only_full_batches_go_there_is_no_governor(
    timeout_ms: int, target: str
) -> None:
    made = edge(timeout_ms=timeout_ms, headrace_latency_target=target)
    assert made.writer.governor is None
    assert made.writer.hold_ms == timeout_ms


def test_a_task_tells_what_its_governors_chose() -> None:
    figures = Figures()
    made = governed()
    register_task_metrics(figures.group, [], [made.writer])
    told = figures.group.own_snapshot()
    assert told[f"output.0.{names.GOVERNED_HOLD_TIME.name}"] == BUDGET_SHARE * 50
    assert told[f"output.0.{names.GOVERNED_BATCH_ROWS.name}"] == ROWS_MAX


def test_the_target_is_off_unless_it_is_set() -> None:
    assert LatencyGovernor.from_settings(Settings({}), 1, ROWS_MAX) is None


@pytest.mark.parametrize(("debloat_ms", "target_ms", "expected_ms"), [(1000, 50, 50), (20, 50, 20)])
def test_gates_limit_what_is_in_flight_to_the_shorter_of_both_targets(
    debloat_ms: int, target_ms: int, expected_ms: int
) -> None:
    settings = Settings(
        {
            "taskmanager.network.memory.buffer-debloat.target": f"{debloat_ms} ms",
            "taskmanager.network.memory.buffer-debloat.samples": "1",
            "taskmanager.network.memory.buffer-debloat.threshold-percentages": "0",
            "headrace.latency.target": f"{target_ms} ms",
        }
    )
    machine = BufferDebloater.from_settings(settings, 1)
    # The producer's side and the receiver's have half of it each.
    machine.recalculate(8_000, 200, 0, 1_000_000)
    assert machine.announced_rows == 40 * expected_ms // 2


@pytest.mark.parametrize("target", ["0 ms", "50 ms"])
def test_a_latency_target_has_a_task_watch_what_is_in_flight_to_it(target: str) -> None:
    cluster = SimulatedCluster()
    environment, location = cluster.start("a")
    source = gate(environment, [location])
    options = {"headrace.latency.target": target, DEBLOAT_ENABLED.key: "false"}
    settings = Settings(options)
    timers = MailboxTimers(ManualClock())
    debloating = GateDebloating([source], settings, timers, lambda: 0.0)
    debloating.start()
    assert (debloating.in_flight_bytes is not None) is (target != "0 ms")
    assert (debloating.is_resting) is (target != "0 ms")
    source.close()
    cluster.loop.run_all()
