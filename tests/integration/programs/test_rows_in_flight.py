"""A whole job whose function stands still: how far its source gets ahead is counted, and stopping waits for no more."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.core.lifecycle import JobStatus
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from headrace.datastream.functions import MapFunction
from headrace.gateways.job_master import JobDetails
from headrace.metrics.names import BACK_PRESSURED_TIME, NUM_RECORDS_IN, NUM_RECORDS_OUT
from headrace.network.flow.buffer_debloater import ROWS_AT_FIRST
from tests.integration.programs.job_details import WAIT_S, await_details

FULL_MS_PER_SECOND: Final = 900
MAY_GO_ON: Final[dict[str, threading.Event]] = {}


class StandsStill(MapFunction):
    """Until the test lets it go on."""

    def map(self, value: Any) -> Any:
        MAY_GO_ON["here"].wait(WAIT_S)
        return value


@pytest.fixture
def may_go_on() -> Iterator[threading.Event]:
    event = MAY_GO_ON["here"] = threading.Event()
    yield event
    event.set()
    del MAY_GO_ON["here"]


def is_full(details: JobDetails) -> bool:
    source = next(each for each in details.vertices if each.name.startswith("Source"))
    waited = source.metrics.get(BACK_PRESSURED_TIME.name, 0.0)
    return waited >= FULL_MS_PER_SECOND


def test_a_source_gets_a_few_hundred_rows_ahead_of_a_function_of_which_nobody_knows_what_it_costs(
    env: StreamExecutionEnvironment, may_go_on: threading.Event, tmp_path: Path
) -> None:
    env.set_parallelism(1)
    numbers = env.from_source(
        NumberSequenceSource(0, 1 << 40), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    keyed = numbers.key_by(lambda _: 0, key_type=Types.LONG())
    keyed.map(StandsStill(), output_type=Types.LONG()).print()
    client = env.execute_async("a hot key")
    details = await_details(client, is_full)
    source, function = sorted(details.vertices, key=lambda each: not each.name.startswith("Source"))
    ahead = source.metrics[NUM_RECORDS_OUT.name] - function.metrics.get(NUM_RECORDS_IN.name, 0.0)
    # The queue, a batch that overfills it, what waits to be split or sealed, and the batch in work.
    assert 0 < ahead <= 2 * ROWS_AT_FIRST
    stopped = client.stop_with_savepoint(False, tmp_path.as_uri())
    may_go_on.set()
    stopped.result(WAIT_S)
    assert client.get_job_status().result(WAIT_S) is JobStatus.FINISHED
