"""A program whose barriers overtake rows: most of its numbers are in flight when its checkpoint is made."""

from collections.abc import Iterator
from typing import Any, Final

from headrace import Row, StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Encoder, Instant
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ValueStateDescriptor
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.unaligned_program import TAPS, Tap
from tests.integration.stored_savepoints.kept_values import Seat, shown
from tests.integration.stored_savepoints.program import HERE, Run, written
from tests.integration.stored_savepoints.signals import WAIT_S

NUMBER_COUNT: Final = 300
_KEY_COUNT: Final = 7


class CountSlowly(KeyedProcessFunction):
    """Counts per key as fast as the tap lets it."""

    def __init__(self, tap: str) -> None:
        self._tap = tap

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        TAPS[self._tap].take()
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        # Apart, as rows of different senders come in any order.
        yield f"{ctx.get_current_key()} counts {count}"
        yield f"{ctx.get_current_key()} has {shown(value)}"


def start(env: StreamExecutionEnvironment, run: Run) -> JobClient:
    """Submit the program as of a run; its tap is closed."""
    configuration = run.configuration()
    configuration.set_string("execution.checkpointing.unaligned.enabled", "true")
    configuration.set_string("headrace.network.seal-rows", "20")
    env.configure(configuration)
    env.set_parallelism(2)
    TAPS[run.name] = Tap()
    GATES[run.name] = Gate(NUMBER_COUNT)
    source = GatedSource(run.name, None if run.is_first else NUMBER_COUNT)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.INT())
    # Rows in flight are of a declared type on one edge, and pickles on the other.
    declared = numbers.uid("numbers").key_by(lambda n: n % _KEY_COUNT, key_type=Types.INT())
    anything = numbers.map(lambda n: Row(seat=Seat(n, "F"), at=Instant(n, 0))).uid("anything")
    by_row = anything.key_by(lambda row: Row(key=row.seat.row % _KEY_COUNT))
    counted = declared.process(CountSlowly(run.name), Types.STRING()).uid("counted")
    by_rows = by_row.process(CountSlowly(run.name), Types.STRING()).uid("counted by rows")
    sink = FileSink.for_row_format(f"{HERE}/output", Encoder.simple_string_encoder()).build()
    counted.union(by_rows).sink_to(sink).uid("output")
    return env.execute_async("is overtaken")


def run_to_end(env: StreamExecutionEnvironment, run: Run) -> list[str]:
    """Go on from a checkpoint to the end of input; return all lines of both runs."""
    client = start(env, run)
    TAPS[run.name].let(10 * NUMBER_COUNT)
    client.get_job_execution_result().result(WAIT_S)
    return written()
