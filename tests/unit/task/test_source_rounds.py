"""How often a source that waits for its own timers is asked."""

from collections import Counter
from collections.abc import Sequence

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.types.type_info import Types
from headrace.functions.discarding_sink import DiscardingSink
from headrace.functions.source import Boundedness, InputStatus, Source, SourceOutput, SourceReader
from headrace.functions.subtask_context import SubtaskContext
from headrace.functions.watermarks import WatermarkStrategy
from tests.unit.task.local_job import LocalJob

TICKS = 60
COUNTS: Counter[str] = Counter()
"""Of the readers, which run in this process."""


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
        self._context.wake()
        if COUNTS["ticks"] < TICKS:
            self._await_tick()


def test_a_source_is_asked_once_for_each_timer_that_wakes_it() -> None:
    COUNTS.clear()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = env.from_source(
        TickingSource(), WatermarkStrategy.no_watermarks(), "ticks", Types.LONG()
    )
    source.sink_to(DiscardingSink())
    with LocalJob(env.get_stream_graph()) as job:
        job.run()
    assert COUNTS["ticks"] == TICKS
    # At the beginning it is asked without one, and the runtime's own timers wake the task a few times.
    assert COUNTS["polls"] < TICKS * 3 // 2
