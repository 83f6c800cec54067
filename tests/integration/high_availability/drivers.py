"""Drivers of one cluster as processes that tests submit jobs to, kill and stop; and a job with exactly-once output."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.checkpoint.options import DATA_INLINE_THRESHOLD, INTERVAL
from headrace.checkpoint.storage.file_systems import child_uri, files_below, is_uri, read_all
from headrace.checkpoint.storage.metadata_key import KEY_FILE, metadata_key
from headrace.cluster.high_availability.coordination import open_coordination
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.common import Encoder
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.core.randomness import system_random
from headrace.core.threads import start_thread
from headrace.datastream import KeyedProcessFunction, RuntimeContext
from headrace.datastream.connectors.file_system import FileSink
from headrace.datastream.state import MapStateDescriptor
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from testkit.chaos.checkpoint_pointers import PointerWatch, look_at
from testkit.waiting import wait_until
from tests.architecture.floor_plan import ROOT
from tests.integration.programs.committed_lines import committed_lines

PROGRAM: Final = "tests.integration.high_availability.driver_program"
FREEZES_BEFORE_IT_SERVES: Final = "HEADRACE_TEST_FREEZES_BEFORE_IT_SERVES"
"""Environment variable with which a session freezes once it has been granted the leadership."""
IS_ELSEWHERE: Final = "HEADRACE_TEST_IS_ELSEWHERE"
"""Environment variable with which a driver knows of no other's end, as one of another host."""
COUNT: Final = 4_000
RATE: Final = 1_000.0
INCREMENTS: Final = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    DATA_INLINE_THRESHOLD.key: "0",
}
"""Settings of a job whose checkpoints share files."""


def settings_of(folder: Path) -> dict[str, str]:
    return {
        "high-availability.type": "file",
        "high-availability.storageDir": str(folder / "ha"),
        "high-availability.cluster-id": "test",
        "headrace.checkpoint.key-file": str(folder / "key"),
        "taskmanager.memory.network.min": "32mb",
        "taskmanager.memory.network.max": "32mb",
        "resourcemanager.taskmanager-timeout": "1 h",
    }


class DriverProcess:
    """One driver. `events` are what it has printed so far."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        failpoints: str = "",
        is_elsewhere: bool = False,
        **options: str,
    ) -> None:
        """`is_elsewhere`: it judges others as from another host."""
        self.name: Final = name
        scratch = folder / name
        scratch.mkdir()
        settings = scratch / "settings.json"
        settings.write_text(json.dumps({**settings_of(folder), **options}))
        self._log: Final = (scratch / "log").open("wb")
        self.log_file: Final = scratch / "log"
        self._process: Final = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, str(settings), str(scratch), failpoints],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                **({IS_ELSEWHERE: "1"} if is_elsewhere else {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        # Written by the reading thread alone; whoever waits sees them grow.
        self.events: Final[list[dict[str, Any]]] = []
        self._reader: Final[threading.Thread] = start_thread(f"events of {name}", self._read)

    def say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def find(self, event: str) -> dict[str, Any] | None:
        return next((each for each in self.events if each["event"] == event), None)

    def wait_for(self, event: str) -> dict[str, Any]:
        def happened() -> bool:
            assert self.find(event) or self._process.poll() is None, self._story()
            return self.find(event) is not None

        wait_until(happened, 120, f"'{event}' of driver {self.name}: {self.events}")
        found = self.find(event)
        assert found is not None
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_standby(self) -> None:
        """Wait until it has seen another one lead: from then on, silence is what it counts."""
        wait_until(lambda: "standby: process" in self.log, 120, f"standby {self.name}")
        assert self.find("leads") is None

    def await_log(self, text: str) -> None:
        """Wait until its log has a text."""
        wait_until(lambda: text in self.log, 120, f"'{text}' in the log of {self.name}")

    def workers(self) -> list[int]:
        """Return the process ids of its TaskManagers."""
        return self.ask("workers")["pids"]

    def ask(self, *words: str) -> dict[str, Any]:
        """Say words, and return the event of the first one's name that comes next."""
        return self.ask_for(words[0], *words)

    def ask_for(self, name: str, *words: str) -> dict[str, Any]:
        """Say words, and return the event of a name that comes next."""

        def told() -> list[dict[str, Any]]:
            return [event for event in self.events if event["event"] == name]

        known = len(told())
        self.say(*words)
        wait_until(lambda: len(told()) > known, 120, f"answer of {self.name} to {words}")
        return told()[-1]

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def kill(self) -> None:
        """Kill it, unless it has killed itself, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Wait until it has ended by itself, and return its exit code."""
        wait_until(lambda: not self.is_alive, 120, f"end of driver {self.name}")
        return self._process.wait()

    @property
    def is_frozen(self) -> bool:
        """Whether it was stopped, as by itself at a failpoint."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def stop(self) -> None:
        """Freeze it with all of its threads."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End its input, so that it ends in order."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def dispose(self) -> None:
        self._process.kill()
        self.close()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append({**json.loads(line), "at": time.monotonic()})

    def _story(self) -> str:
        return f"driver {self.name} has ended: {self.events}\n{self.log[-4000:]}"


class Rivals:
    """Drivers of one cluster in one folder, whose common storage lies there, or in an object store."""

    def __init__(
        self, folder: Path, store_uri: str = "", options: Mapping[str, str] | None = None
    ) -> None:
        """`options`: of all drivers, such as the service through which they elect their leader."""
        self.folder: Final = folder
        self._store_uri: Final = store_uri or str(folder / "ha")
        self.storage: Final = folder / "ha" / "test"
        """Only where it is a folder."""
        self.uri: Final = child_uri(self._store_uri, "test")
        self._common: Final = {"high-availability.storageDir": self._store_uri, **(options or {})}
        self._drivers: Final[list[DriverProcess]] = []
        self._watches: Final[dict[JobId, PointerWatch]] = {}

    def start(
        self, name: str, *, failpoints: str = "", is_elsewhere: bool = False, **options: str
    ) -> DriverProcess:
        options = {**self._common, **options}
        driver = DriverProcess(
            self.folder, name, failpoints=failpoints, is_elsewhere=is_elsewhere, **options
        )
        self._drivers.append(driver)
        driver.wait_for("started")
        return driver

    def assert_forgotten(self, job: "NumbersJob", *, below: str = "") -> None:
        """Wait until nothing is left of a job that has ended."""

        def left() -> list[str]:
            if is_uri(self.uri):
                found = files_below(child_uri(self.uri, below) if below else self.uri)
                paths = [entry.relative_path for entry in found]
            else:
                # Folders go meanwhile, which `os.walk` passes over and `Path.rglob` does not.
                walked = os.walk(self.storage / below)
                paths = [f"{place}/{name}" for place, *names in walked for name in chain(*names)]
            return [path for path in paths if job.job_id.hex() in path]

        wait_until(lambda: not left(), 60, f"no file of the job: {left()}")

    def leader(self) -> LeaderRecord:
        """Return the record of who leads, or led last."""
        settings = Settings(settings_of(self.folder) | self._common)
        coordination = open_coordination(settings, system_random())
        try:
            found = coordination.records.newest()
        finally:
            coordination.close()
        assert found is not None, "nobody has ever led"
        return found

    def assert_gave_nothing_back(self, first: DriverProcess, second: DriverProcess) -> None:
        """Check the records of two leaders that have followed on each other: neither has ended the second's term."""
        record = self.leader()
        assert (record.epoch, record.is_released) == (2, False)
        assert f"process {second.pid} " in record.holder
        if self._common.get("high-availability.type", "file") == "file":
            uri = child_uri(self.uri, "leader", "epoch-00000001")
            own = bytes(read_all(uri)).decode()
            assert f"process {first.pid} " in own
            assert '"is_released":false' in own, "it gave back what was not its own any more"

    def newest_checkpoint(self, job: "NumbersJob") -> int | None:
        """Return the checkpoint from which whoever comes next has to go on."""
        found = files_below(child_uri(self.uri, "checkpoints", job.job_id.hex()))
        names = [entry.relative_path.split("/") for entry in found]
        ids = [int(name[0].removeprefix("chk-")) for name in names if name[-1] == "_metadata"]
        return max(ids, default=None)

    def watch_pointers(self, job: "NumbersJob") -> None:
        """Look from now on, all the while, what the storage says is the newest checkpoint of a job."""
        folder = child_uri(self.uri, "checkpoints", job.job_id.hex())
        key = Settings({KEY_FILE.key: str(self.folder / "key")})
        self._watches[job.job_id] = PointerWatch(
            lambda: look_at(folder, lambda: metadata_key(key)), 0.5 if is_uri(self.uri) else 0.05
        )

    def await_watched(self, job: "NumbersJob", after: int) -> None:
        """Wait until the watch of a job has itself seen a checkpoint newer than `after`."""
        pointers = self._watches[job.job_id].pointers
        wait_until(lambda: pointers.newest_seen > after, 120, f"a checkpoint after {after}")

    def pointer_mistakes(self, job: "NumbersJob") -> tuple[str, ...]:
        """End the watch of a job, and return what it has found."""
        watch = self._watches.pop(job.job_id)
        mistakes = watch.stop()
        return mistakes if watch.pointers.newest_seen else ("no checkpoint was seen", *mistakes)

    def dispose(self) -> None:
        for driver in self._drivers:
            driver.dispose()
        for watch in self._watches.values():
            watch.stop()


@contextlib.contextmanager
def rivals(
    folder: Path, store_uri: str = "", options: Mapping[str, str] | None = None
) -> Generator[Rivals]:
    one = Rivals(folder, store_uri, options)
    try:
        yield one
    finally:
        one.dispose()


class _Remembered(KeyedProcessFunction):
    """Passes on numbers of a key that come in order, none twice; its state grows with them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_map_state(
            MapStateDescriptor("seen", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        if value >= 16 and not self._seen.contains(value - 16):
            raise ValueError(f"{value - 16} is not in the state: it was lost")
        self._seen.put(value, 1)
        yield value


class NumbersJob:
    """Writes each number once into files, with many checkpoints."""

    def __init__(
        self,
        folder: Path,
        *,
        padding: int = 0,
        count: int = COUNT,
        parallelism: int = 1,
        settings: Mapping[str, str] | None = None,
        is_keyed: bool = False,
        rate: float = RATE,
    ) -> None:
        """`padding`: bytes that its function carries, so that it becomes a blob. `is_keyed`: it has keyed state.

        `rate`: numbers in each second.
        """
        self.rate: Final = rate
        self._settings: Final = {INTERVAL.key: "100 ms", **(settings or {})}
        self.target: Final = folder / "lines"
        self._parallelism: Final = parallelism
        self._is_keyed: Final = is_keyed
        self.count: Final = count
        self.job_id: Final = JobId.generate(system_random())
        self.file: Final = folder / "graph"
        self.file.write_bytes(msgspec.msgpack.encode(self._graph(os.urandom(padding))))

    @property
    def is_begun(self) -> bool:
        """Whether output of a first checkpoint is committed."""
        return bool(committed_lines(self.target))

    def await_begin(self) -> None:
        wait_until(lambda: self.is_begun, 120, "output of a first checkpoint")

    def output(self) -> Counter[str]:
        return committed_lines(self.target)

    @property
    def expected(self) -> Counter[str]:
        return Counter(str(number) for number in range(self.count))

    def _graph(self, padding: bytes) -> JobGraph:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(self._parallelism)
        source = DataGeneratorSource(
            lambda number: number, self.count, Types.LONG(), rows_per_second=self.rate
        )
        numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        if self._is_keyed:
            keyed = numbers.key_by(lambda number: number % 16, key_type=Types.LONG())
            numbers = keyed.process(_Remembered(), output_type=Types.LONG())
        lines = numbers.map(
            lambda number: str(number + 0 * len(padding)), output_type=Types.STRING()
        )
        sink = FileSink.for_row_format(str(self.target), Encoder.simple_string_encoder()).build()
        lines.sink_to(sink)
        return generate_job_graph(env.get_stream_graph(), self.job_id, Settings(self._settings))
