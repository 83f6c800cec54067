"""A job that counts numbers into files while its checkpoint storage fails."""

from pathlib import Path
from typing import Any

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.checkpoint.options import (
    CHECKPOINT_DIRECTORY,
    DATA_INLINE_THRESHOLD,
    INTERVAL,
    KEY_FILE,
    TOLERABLE_FAILURES,
)
from headrace.common import Configuration, Encoder
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import ValueStateDescriptor
from testkit.faulty_file_system import StorageFaults, faults_of
from tests.integration.programs.committed_lines import committed_lines
from tests.integration.programs.gated import GATES, Gate, GatedSource

COUNT, KEY_COUNT = 120_000, 3


PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class CountPerKey(KeyedProcessFunction):
    """Fails once, when a key was seen `fail_at` times."""

    def __init__(self, marker: Path, fail_at: int) -> None:
        self._marker = marker
        self._fail_at = fail_at

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self._count.value() or 0) + 1
        if count == self._fail_at and not self._marker.exists():
            self._marker.touch()
            raise ValueError("it was to fail once")
        self._count.update(count)
        yield ctx.get_current_key(), count


class Job:
    """Counts numbers per key into files; its checkpoints lie on storage that fails as told.

    The gate holds most of the numbers back, so that no job ends, and takes its checkpoints with it, before the test has
    looked at them.
    """

    def __init__(self, env: StreamExecutionEnvironment, folder: Path) -> None:
        self.folder = folder
        self.query = f"seed=3&run={folder.name}"
        self.checkpoints = f"faulty://{folder}/checkpoints?{self.query}"
        self._env = env
        self.gate = GATES[folder.name] = Gate(COUNT // 4)
        self.set(
            {
                CHECKPOINT_DIRECTORY.key: self.checkpoints,
                KEY_FILE.key: str(folder / "key"),
                DATA_INLINE_THRESHOLD.key: "0",
                INTERVAL.key: "20 ms",
                TOLERABLE_FAILURES.key: "1000000",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000000",
                "restart-strategy.fixed-delay.delay": "10 ms",
            }
        )

    @property
    def faults(self) -> StorageFaults:
        return faults_of(self.query)

    def set(self, settings: dict[str, str]) -> None:
        configuration = Configuration()
        for key, value in settings.items():
            configuration.set_string(key, value)
        self._env.configure(configuration)

    def start(self, *, fail_at: int = -1) -> JobClient:
        self._env.set_parallelism(2)
        target, marker = str(self.folder / "lines"), self.folder / "failed"
        sink = FileSink.for_row_format(target, Encoder.simple_string_encoder()).build()
        source = GatedSource(self.folder.name, COUNT, rows_max=1000)
        numbers = self._env.from_source(
            source, WatermarkStrategy.no_watermarks(), "n", Types.LONG()
        ).uid("n")
        keyed = numbers.key_by(lambda n: n % KEY_COUNT, key_type=Types.LONG())
        counted = keyed.process(CountPerKey(marker, fail_at), output_type=PAIR).uid("counter")
        lines = counted.map(lambda pair: f"{pair[0]} {pair[1]}", output_type=Types.STRING())
        lines.sink_to(sink).uid("lines")
        return self._env.execute_async("counting")

    def counts(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for line in committed_lines(self.folder / "lines").elements():
            key, _, count = line.partition(" ")
            found.setdefault(int(key), []).append(int(count))
        return {key: sorted(counts) for key, counts in found.items()}


EXACT = {key: list(range(1, COUNT // KEY_COUNT + 1)) for key in range(KEY_COUNT)}
