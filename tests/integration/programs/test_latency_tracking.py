"""A whole job with latency markers: what waits in front of an operator shows in that operator's metric."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.datastream.functions import MapFunction
from headrace.gateways.job_master import JobDetails
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details

INTERVAL_MS = 50
MARKERS = 5
LEAST_MS = (MARKERS - 1) * INTERVAL_MS
"""So many wait at least where an output is full; so old is the first of them by then."""


class Barrier:
    """Holds a subtask up in its first row until the test lets it go. The task is a thread of this process."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.may_go = threading.Event()


FULL = "isBackPressured"

BARRIERS: dict[str, Barrier] = {}


class Slow(MapFunction):
    def map(self, value: Any) -> Any:
        BARRIERS["here"].came.set()
        assert BARRIERS["here"].may_go.wait(60)
        return value


@pytest.fixture
def barrier() -> Iterator[Barrier]:
    GATES["latency"], BARRIERS["here"] = Gate(1), Barrier()
    yield BARRIERS["here"]
    del GATES["latency"], BARRIERS["here"]


def latency(details: JobDetails, vertex_index: int, ending: str) -> float:
    """A figure of the vertex's only operator behind a source; 0 where there is none yet."""
    metrics = details.vertices[vertex_index].metrics.items()
    return max((value for name, value in metrics if name.endswith(f".latency_{ending}")), default=0)


def test_rows_that_wait_for_a_slow_operator_show_in_its_latency(
    env: StreamExecutionEnvironment, barrier: Barrier
) -> None:
    env.set_parallelism(1).set_buffer_timeout(0)
    env.get_config().set_latency_tracking_interval(INTERVAL_MS)
    strategy = WatermarkStrategy.no_watermarks()
    rows = env.from_source(GatedSource("latency", 2), strategy, "numbers", Types.LONG())
    fast = rows.map(lambda n: n, output_type=Types.LONG())
    fast.disable_chaining().map(Slow(), Types.LONG()).disable_chaining().print()
    client = env.execute_async("latency")
    assert barrier.came.wait(60)
    # Nothing but markers fills it, behind the row that is held up.
    full = await_details(client, lambda details: bool(details.vertices[1].metrics.get(FULL)))
    before = latency(full, 2, "max")
    barrier.may_go.set()
    details = await_details(client, lambda details: latency(details, 2, "max") > before)
    assert latency(details, 2, "max") >= LEAST_MS
    assert latency(details, 1, "min") < latency(details, 2, "max")
    GATES["latency"].open_to(2)
    client.get_job_execution_result().result(60)
