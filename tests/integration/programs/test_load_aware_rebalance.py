"""A whole job whose rebalance looks at the load: a straggler gets few rows, and does not hold up the others."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.datastream.functions import MapFunction, RuntimeContext
from headrace.network.batches.channel_selectors import ADAPTIVE_PARTITIONER, WHOLE_BATCH_ROWS
from tests.integration.programs.gated import GATES, Gate, GatedSource

ROWS = 8000
LAST_ROWS = 1000
"""For these the straggler waits no more: what is on its way to it is more than its part by then."""
RATIO = 3
"""Rows of the other mapper for each row of the straggler."""


class Counts:
    """Rows by subtask. Told by the tasks, which are threads of this process: hence the lock."""

    def __init__(self) -> None:
        self.rows = [0, 0]
        self._changed = threading.Condition()

    def processed(self, index: int) -> None:
        with self._changed:
            self.rows[index] += 1
            self._changed.notify_all()

    def wait_for_the_other(self) -> None:
        """Until the straggler may have its next row. AssertionError where the other one does not get ahead."""
        with self._changed:
            may_go_on = self._changed.wait_for(self._may_go_on, 20)
        assert may_go_on, f"the straggler holds up the other: {self.rows}"

    def _may_go_on(self) -> bool:
        straggler, other = self.rows
        return other >= RATIO * (straggler + 1) or straggler + other >= ROWS - LAST_ROWS


COUNTS: dict[str, Counts] = {}


class Straggling(MapFunction):
    """Subtask 0 does a row for each RATIO rows that subtask 1 has done; whatever that is in time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._index = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        if self._index == 0:
            COUNTS["here"].wait_for_the_other()
        COUNTS["here"].processed(self._index)
        return value


@pytest.fixture
def counts() -> Iterator[Counts]:
    made = COUNTS["here"] = Counts()
    GATES["load"] = Gate(ROWS)
    yield made
    del COUNTS["here"], GATES["load"]


@pytest.mark.parametrize("exchange", ["rebalance", "rescale"])
@pytest.mark.usefixtures("env")
def test_a_straggler_gets_fewer_rows_and_every_row_is_processed_once(
    counts: Counts, exchange: str
) -> None:
    configuration = Configuration()
    configuration.set_string(ADAPTIVE_PARTITIONER.key, "true")
    # Each of the source's small batches goes to one consumer, at once.
    configuration.set_string(WHOLE_BATCH_ROWS.key, "1")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_buffer_timeout(0)
    source = GatedSource("load", ROWS)
    no_watermarks = WatermarkStrategy.no_watermarks()
    stream: Any = env.from_source(source, no_watermarks, "numbers", Types.LONG()).set_parallelism(1)
    spread = getattr(stream, exchange)()
    with spread.map(Straggling(), Types.LONG()).set_parallelism(2).execute_and_collect() as found:
        assert sorted(found) == list(range(ROWS))
    straggler, other = counts.rows
    assert straggler + other == ROWS
    assert 0 < 2 * straggler < other
