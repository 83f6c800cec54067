"""A checkpoint that expires says who holds it up, what that subtask does, and whose barriers it lacks."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.datastream import KeyedProcessFunction
from headrace.functions.sink import DiscardingSink
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.unaligned_program import TAPS, Tap

pytestmark = pytest.mark.integration

WAIT_S = 60
BATCH_ROWS = 200


class Tapped(KeyedProcessFunction):
    """As fast as the tap lets it."""

    def __init__(self, tap: str) -> None:
        self._tap = tap

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        TAPS[self._tap].take()
        yield value


def expire(env: StreamExecutionEnvironment, name: str, *, per_look: int) -> str:
    """Run a job whose function lets `per_look` records through each time the test looks; say why one expired.

    The source `quiet` has nothing to say, `busy` more than fits. On a busy machine the test looks seldom, so it lets
    more through where no barrier has come in time, and fewer where a checkpoint was completed.
    """
    tap = TAPS[name] = Tap()
    GATES[f"{name}-quiet"], GATES[f"{name}-busy"] = Gate(0), Gate(1_000_000)
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "20 ms",
        "execution.checkpointing.timeout": "300 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
        # What is in flight is as much as memory holds, so that it takes longer than the time-out to work off.
        "taskmanager.network.memory.buffer-debloat.enabled": "false",
        "headrace.network.seal-rows": f"{BATCH_ROWS}",
    }.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_parallelism(1)
    quiet, busy = (
        env.from_source(
            GatedSource(f"{name}-{kind}", None, rows_max=BATCH_ROWS),
            WatermarkStrategy.no_watermarks(),
            kind,
            Types.INT(),
        )
        for kind in ("quiet", "busy")
    )
    (
        quiet.union(busy)
        .key_by(lambda number: number, key_type=Types.INT())
        .process(Tapped(name), output_type=Types.INT())
        .sink_to(DiscardingSink())
    )
    client = env.execute_async(name)
    told, completed = -1, 0
    try:
        while True:
            checkpoints = client.get_job_details().result(WAIT_S).checkpoints
            failed = checkpoints.latest_failed
            wanted = "waits for barriers" if per_look else "bytes are queued in its inputs"
            if failed is not None and wanted in failed.text:
                return failed.text
            assert tap.taken < 500_000
            if failed is not None and failed.checkpoint_id > told:
                told, per_look = failed.checkpoint_id, 2 * per_look
            if checkpoints.counts.completed > completed:
                completed, per_look = checkpoints.counts.completed, (per_look + 3) // 4
            if per_look:
                tap.let_if_empty(per_look)
    finally:
        tap.let(10_000_000)
        client.cancel_at_once().result(WAIT_S)


def test_it_says_whose_barrier_a_subtask_waits_for(env: StreamExecutionEnvironment) -> None:
    text = expire(env, "aligning", per_look=1)
    # The busy source, or one of those that take its rows and are as busy.
    whose = r"'(Source: busy|_stream_key_by_map_operator|Source: busy -> _stream_key_by_map_operator)' \(\d/\d\)"
    assert re.search(rf"waits for barriers on 1 of 2 channel\(s\), those of {whose}, for ", text)
    assert "Source: quiet" not in text


def test_it_says_of_a_subtask_that_hangs_in_user_code_that_it_is_busy(
    env: StreamExecutionEnvironment,
) -> None:
    text = expire(env, "hanging", per_look=0)
    assert "no barrier of it has come" in text
    assert "it is busy" in text
