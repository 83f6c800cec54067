"""Latency markers in a task: when sources send them, the one way each takes, and who notes them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.common import Time
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.elements import LatencyMarker, PlacedMarker, Watermark
from headrace.core.ids import OperatorId
from headrace.core.randomness import SeededRandom
from headrace.core.record_batch import RecordBatch
from headrace.datastream import AsyncDataStream
from headrace.datastream.functions import AsyncFunction, CoMapFunction
from headrace.graph.job_graph import PartitionerKind
from headrace.task.chain.outputs import NetworkTarget, OperatorOutput
from headrace.task.checkpointing.channel_state import CapturedFrame, frames_of, tables_of
from headrace.task.mailbox import MailboxTimers
from headrace.task.metrics import TaskCounters
from headrace.task.stream_task import LatencyMarkerEmitter
from tests.unit.network.writer_edge import edge
from tests.unit.task.local_job import LocalJob

SOURCE = OperatorId(b"s" * 16)
MARK = LatencyMarker(5, SOURCE, 1)


def _refuse(marker: LatencyMarker) -> None:
    raise AssertionError(f"{marker} was sent")


def sent(interval: str, duration_ms: int, delays_ms: dict[int, int] | None = None) -> list[int]:
    """When a source sends markers, whose task is held up for so long at these times."""
    clock = ManualClock(1000)
    timers = MailboxTimers(clock)
    found: list[LatencyMarker] = []
    settings = Settings({"metrics.latency.interval": interval})
    LatencyMarkerEmitter(SOURCE, 3, settings, timers, lambda _: True, found.append).start()
    while clock.now_ms() < 1000 + duration_ms:
        timers.fire_due()
        clock.advance_ms((delays_ms or {}).get(clock.now_ms(), 1))
    assert all((each.source_id, each.subtask_index) == (SOURCE, 3) for each in found)
    return [each.marked_time_ms for each in found]


def test_a_source_sends_one_at_once_and_one_each_interval() -> None:
    assert sent("10 ms", 35) == [1000, 1010, 1020, 1030]


def test_after_a_delay_the_next_one_comes_an_interval_later_and_none_is_made_up_for() -> None:
    assert sent("10 ms", 60, {1010: 25}) == [1000, 1010, 1035, 1045, 1055]


def test_none_is_sent_and_no_timer_set_where_they_are_off() -> None:
    assert sent("0", 50) == []
    timers = MailboxTimers(ManualClock())
    LatencyMarkerEmitter(SOURCE, 0, Settings(), timers, lambda _: True, _refuse).start()
    assert timers.delay_to_next_ms() is None


def test_while_an_output_is_full_one_marker_waits_and_its_wait_counts() -> None:
    clock = ManualClock(1000)
    timers = MailboxTimers(clock)
    found: list[LatencyMarker] = []
    waiting: list[Callable[[], None]] = []

    def is_full(again: Callable[[], None]) -> bool:
        waiting.append(again)
        return False

    room: list[Callable[[Callable[[], None]], bool]] = [is_full]
    settings = Settings({"metrics.latency.interval": "10 ms"})
    emitter = LatencyMarkerEmitter(
        SOURCE, 0, settings, timers, lambda again: room[0](again), found.append
    )
    emitter.start()
    for _ in range(50):
        timers.fire_due()
        clock.advance_ms(1)
    assert found == [] and len(waiting) == 1
    room[0] = lambda _: True
    waiting[0]()
    assert [each.marked_time_ms for each in found] == [1000]
    assert timers.delay_to_next_ms() == 10


def test_less_than_a_millisecond_is_one() -> None:
    assert sent("200 us", 3) == [1000, 1001, 1002]


class _Target:
    makes_columns = False
    reads_rows = False

    def __init__(self, note: Callable[[], None]) -> None:
        self._note = note

    def receive(self, batch: RecordBatch) -> None:
        raise AssertionError("no rows are sent")

    def receive_watermark(self, timestamp_ms: int) -> None:
        raise AssertionError("no watermark is sent")

    def receive_status(self, is_idle: bool) -> None:
        raise AssertionError("no status is sent")

    def receive_latency_marker(self, marker: LatencyMarker) -> None:
        assert marker is MARK
        self._note()


def test_where_an_output_forks_a_marker_goes_one_way_drawn_at_random() -> None:
    counts: Counter[str] = Counter()
    output = OperatorOutput(random=SeededRandom(1))
    for name, tag in (("main", None), ("other", None), ("side", "late")):
        output.add_target(_Target(lambda name=name: counts.update([name])), tag)
    for _ in range(300):
        output.emit_latency_marker(MARK)
    assert counts.total() == 300
    assert min(counts[name] for name in ("main", "other", "side")) > 50


def test_on_an_edge_it_goes_to_one_channel_drawn_at_random_when_the_timeout_is_over() -> None:
    made = edge(3, PartitionerKind.HASH, timeout_ms=10)
    timers = MailboxTimers(made.clock)
    target = NetworkTarget(
        made.writer, timers, TaskCounters(), lambda error: error, SeededRandom(2)
    )
    counts: Counter[int] = Counter()
    for _ in range(100):
        target.receive_latency_marker(MARK)
        timers.fire_due()
        assert made.notified == []
        made.clock.advance_ms(10)
        timers.fire_due()
        (channel,) = made.notified
        assert made.read(channel) == [([], (PlacedMarker(0, MARK),))]
        made.notified.clear()
        counts[channel] += 1
    assert min(counts[channel] for channel in range(3)) > 10


def test_without_a_random_channel_it_ends_before_the_edge() -> None:
    made = edge(2, timeout_ms=0)
    timers = MailboxTimers(made.clock)
    NetworkTarget(made.writer, timers, TaskCounters(), lambda error: error).receive_latency_marker(
        MARK
    )
    assert made.notified == [] and timers.delay_to_next_ms() is None


def test_it_is_stored_with_the_rows_in_flight() -> None:
    frame = CapturedFrame(None, (PlacedMarker(0, MARK), PlacedMarker(0, Watermark(7))))
    (table,) = tables_of([frame])
    assert frames_of(table.content) == [frame]


class _Sum(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return value


class _Answer(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]

    def timeout(self, value: Any) -> list[Any]:
        raise AssertionError("nothing takes so long")


def told_by(
    env: StreamExecutionEnvironment, settings: dict[str, str] | None = None
) -> dict[str, set[str]]:
    """The operators of a job by name that noted markers, each with the sources they came from."""
    options = {"metrics.latency.interval": "1 ms", **(settings or {})}
    with LocalJob(env.get_stream_graph(), options) as job:
        job.run()
        names = {
            operator.operator_id.hex(): operator.name
            for vertex in job.graph.vertices
            for operator in vertex.operators
        }
        found: dict[str, set[str]] = {}
        for task in job.tasks:
            for metric in task.metrics_snapshot():
                if metric.startswith("latency.") and metric.endswith(".latency_p99"):
                    _, _, source_id, _, operator_id, *_ = metric.split(".")
                    found.setdefault(names[operator_id], set()).add(names[source_id])
    return found


def environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    return env


def test_every_operator_of_chains_unions_and_two_inputs_notes_the_sources_behind_it() -> None:
    env = environment()
    left = env.from_collection([1, 2], type_info=Types.LONG()).name("left")
    right = env.from_collection([3, 4], type_info=Types.LONG()).name("right")
    third = env.from_collection([5], type_info=Types.LONG()).name("third")
    mapped = left.map(lambda n: n, output_type=Types.LONG()).name("mapped")
    united = mapped.union(right).rebalance().map(lambda n: n, output_type=Types.LONG())
    joined = united.name("united").connect(third.broadcast()).map(_Sum(), Types.LONG())
    joined.name("two inputs").print().name("sink")
    both = {"Source: left", "Source: right"}
    assert told_by(env) == {
        "mapped": {"Source: left"},
        "united": both,
        "two inputs": both | {"Source: third"},
        "Sink: sink": both | {"Source: third"},
    }


def test_asynchronous_and_windowing_operators_are_passed_by_too() -> None:
    env = environment()
    numbers = env.from_collection([1, 2, 3], type_info=Types.LONG()).name("numbers")
    answered = AsyncDataStream.unordered_wait(
        numbers, _Answer(), Time.seconds(60), output_type=Types.LONG()
    )
    windows = answered.name("async").key_by(lambda n: 0, key_type=Types.LONG()).count_window(2)
    windows.reduce(lambda a, b: a + b).name("windows").print().name("sink")
    assert told_by(env).keys() >= {"async", "windows", "Sink: sink"}


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("ALL_EXCHANGES_HYBRID_FULL", {"mapped", "Sink: sink"}),
        ("ALL_EXCHANGES_BLOCKING", {"mapped"}),
    ],
)
def test_they_end_before_results_that_lie_until_their_consumers_start(
    mode: str, wanted: set[str]
) -> None:
    env = environment()
    numbers = env.from_collection([1, 2], type_info=Types.LONG()).name("numbers")
    mapped = numbers.map(lambda n: n, output_type=Types.LONG()).name("mapped")
    mapped.rebalance().print().name("sink")
    assert told_by(env, {"execution.batch-shuffle-mode": mode}).keys() == wanted


def test_where_they_are_off_nothing_is_told() -> None:
    env = environment()
    env.from_collection([1], type_info=Types.LONG()).print()
    assert told_by(env, {"metrics.latency.interval": "0"}) == {}
