"""Rounds of a source that waits for its own timers: how often it is asked, and what happens between two of them."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.lifecycle import ExecutionState
from headrace.core.types.type_info import Types
from headrace.functions.runtime_context import SubtaskContext
from headrace.functions.sink import DiscardingSink
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.watermarks import WatermarkStrategy
from tests.unit.task.local_job import LocalJob

TICKS = 60
COUNTS: Counter[str] = Counter()
"""Of the readers, which run in this process."""


ON_TICK: list[Callable[[], None]] = []
"""What is done with the first tick, which then is the only one."""


class TickingSource(Source):
    """Has nothing until it ends with its last tick."""

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_reader(self, context: SubtaskContext) -> SourceReader:
        return TickingReader(context)


class TickingReader(SourceReader):
    """Wakes itself each millisecond, by one timer at a time."""

    def __init__(self, context: SubtaskContext) -> None:
        self._context = context

    def start(self) -> None:
        self._await_tick()

    def poll_next(self, output: SourceOutput) -> InputStatus:
        COUNTS["polls"] += 1
        if COUNTS["ticks"] == TICKS:
            return InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE

    def snapshot_state(self, checkpoint_id: int) -> Sequence[bytes]:
        return []

    def _await_tick(self) -> None:
        timers = self._context.timers
        timers.schedule(timers.now_ms() + 1, self._tick)

    def _tick(self, _time_ms: int) -> None:
        COUNTS["ticks"] += 1
        for action in ON_TICK:
            action()
        self._context.wake()
        if COUNTS["ticks"] < TICKS and not ON_TICK:
            self._await_tick()


def ticking_program() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = env.from_source(
        TickingSource(), WatermarkStrategy.no_watermarks(), "ticks", Types.LONG()
    )
    source.sink_to(DiscardingSink())
    return env


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    COUNTS.clear()
    ON_TICK.clear()


def test_a_source_is_asked_once_for_each_timer_that_wakes_it() -> None:
    with LocalJob(ticking_program().get_stream_graph()) as job:
        job.run()
    assert COUNTS["ticks"] == TICKS
    # At the beginning it is asked without one, and the runtime's own timers wake the task a few times.
    assert COUNTS["polls"] < TICKS * 3 // 2


def test_a_task_that_is_cancelled_amid_its_timers_ends_with_that_round() -> None:
    with LocalJob(ticking_program().get_stream_graph()) as job:

        def cancel_beside() -> None:
            thread = threading.Thread(target=job.tasks[0].cancel)
            thread.start()
            thread.join()

        ON_TICK.append(cancel_beside)
        job.start()
        job.listener.await_end(1)
        assert job.final_states() == {ExecutionState.CANCELED}
        assert COUNTS["ticks"] == 1
