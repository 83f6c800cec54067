"""A back-pressured program takes checkpoints: barriers overtake, and what they overtook is not lost by a failure."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration, Encoder
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ValueStateDescriptor
from tests.integration.programs.gated import GATES, Gate, GatedSource

pytestmark = pytest.mark.integration

COUNT, KEY_COUNT, WAIT_S = 4000, 7, 60
PAIR = Types.TUPLE([Types.INT(), Types.INT()])


class Tap:
    """Lets so many records through, in all subtasks together. The test and two tasks share it: hence the lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._left = 0
        self.taken = 0

    def let_if_empty(self, count: int) -> None:
        with self._changed:
            if not self._left:
                self.let(count)

    def let(self, count: int) -> None:
        with self._changed:
            self._left += count
            self._changed.notify_all()

    def take(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left > 0, WAIT_S)
            self._left -= 1
            self.taken += 1


TAPS: dict[str, Tap] = {}


class SlowCount(KeyedProcessFunction):
    """Counts as fast as the tap lets it; fails once, when the marker is to be made."""

    def __init__(self, tap: str, marker: str) -> None:
        self._tap = tap
        self._marker = Path(marker)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        TAPS[self._tap].take()
        if self._marker.exists():
            self._marker.unlink()
            raise ValueError("it was to fail once")
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield ctx.get_current_key(), count


def written(folder: Path) -> Counter[str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    visible = [file for file in files if file.relative_to(folder).parts[0][0] not in "._"]
    return Counter(line for file in visible for line in file.read_text().splitlines())


@pytest.mark.parametrize("aligned_timeout", ["0 ms", "20 ms"])
def test_a_back_pressured_program_completes_checkpoints_and_loses_nothing_by_a_failure(
    env: StreamExecutionEnvironment, tmp_path: Path, aligned_timeout: str
) -> None:
    name, target, marker = f"slow-{aligned_timeout}", tmp_path / "target", tmp_path / "fail"
    tap = TAPS[name] = Tap()
    GATES[name] = Gate(COUNT)
    configuration = Configuration()
    for key, value in {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": aligned_timeout,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 ms",
        "headrace.network.seal-rows": "20",
    }.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_parallelism(2)
    (
        env.from_source(
            GatedSource(name, COUNT), WatermarkStrategy.no_watermarks(), "numbers", Types.INT()
        )
        .key_by(lambda number: number % KEY_COUNT, key_type=Types.INT())
        .process(SlowCount(name, str(marker)), output_type=PAIR)
        .map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING())
        .sink_to(FileSink.for_row_format(str(target), Encoder.simple_string_encoder()).build())
    )
    client = env.execute_async(name)
    while client.get_job_details().result(WAIT_S).checkpoints.counts.completed < 2:
        # A few records at a time: nearly all of them are on their way, or not read yet.
        tap.let_if_empty(2)
        assert tap.taken < COUNT // 2, "no checkpoint before most was processed"
    marker.touch()
    tap.let(10 * COUNT)
    client.get_job_execution_result().result(WAIT_S)
    details = client.get_job_details().result(WAIT_S)
    assert details.checkpoints.counts.restored == 1
    per_key = Counter(number % KEY_COUNT for number in range(COUNT))
    expected = Counter(f"{key} {n}" for key, total in per_key.items() for n in range(1, total + 1))
    assert written(target) == expected
