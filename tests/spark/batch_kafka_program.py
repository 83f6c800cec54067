"""Jobs in BATCH mode that read and write Kafka, for tests: `batch_kafka_program.py <folder> <servers>`.

topic "numbers" -rebalance-> functions that fail and kill -rebalance-> topics "exact" and "plain"

Then a job fails, and one is cancelled, when a subtask has prepared output for two sinks; and one is cancelled amid its
commit.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.common import Encoder, JobClient, SimpleStringSchema, Types, WatermarkStrategy
from headrace.connectors.files.sink.file_commit import FileCommitter
from headrace.core.errors import HeadraceError
from headrace.datastream import (
    DataStream,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from headrace.datastream.connectors.base import DeliveryGuarantee
from headrace.datastream.connectors.file_system import FileSink, RollingPolicy
from headrace.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from headrace.datastream.connectors.number_seq import NumberSequenceSource
from tests.integration.kafka.mock_cluster import values_in
from tests.spark.processes import parent_pid_of

FOLDER, SERVERS = Path(sys.argv[1]), sys.argv[2]
COUNT = 20_011
SLOTS = 4
TEXT = "." * 200
"""Records of more than 16 KB are staged in files."""
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(SLOTS)


def await_that(condition: Callable[[], object]) -> None:
    while not condition():
        threading.Event().wait(0.05)


def is_first(name: str) -> bool:
    """Return whether nobody has asked this before."""
    try:
        os.close(os.open(FOLDER / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def faulty(number: int) -> int:
    if number == COUNT // 2 and is_first("raised"):
        raise ValueError("the first attempt fails")
    if number == COUNT // 3 and is_first("worker"):
        os.kill(os.getpid(), signal.SIGKILL)
    return number


class Killing(MapFunction):
    """Kills the executor, once, in a subtask that Spark starts when others have ended."""

    def open(self, runtime_context: RuntimeContext) -> None:
        if runtime_context.get_index_of_this_subtask() >= SLOTS and is_first("executor"):
            # The JVM, of which the forking daemon is a child and this worker a grandchild.
            os.kill(parent_pid_of(os.getppid()), signal.SIGKILL)
            signal.pause()

    def map(self, value: int) -> str:
        return f"{value}:{TEXT}"


class Line:
    """A record whose text is not written before the other subtask's output is prepared, nor then."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text

    def __str__(self) -> str:
        if self._text.startswith("1:"):
            await_that(lambda: staged(".arrow") and staged(".pending") and staged(".inprogress"))
            if is_first(f"{self._name}-killed"):
                os.kill(os.getpid(), signal.SIGKILL)
            if self._name == "failing":
                raise ValueError("every attempt fails")
            (FOLDER / f"{self._name}-waits").touch()
            await_that(lambda: False)
        return self._text


def staged(suffix: str) -> list[str]:
    return [path.name for path in FOLDER.rglob(f"*{suffix}")]


def source_of(topic: str, *, is_bounded: bool = True) -> KafkaSource:
    builder = KafkaSource.builder().set_bootstrap_servers(SERVERS).set_topics(topic)
    builder.set_value_only_deserializer(SimpleStringSchema())
    if is_bounded:
        builder.set_bounded(KafkaOffsetsInitializer.latest())
    return builder.build()


def sink_of(topic: str, guarantee: DeliveryGuarantee) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers(SERVERS)
    builder.set_delivery_guarantee(guarantee).set_transactional_id_prefix(topic)
    return builder.set_record_serializer(schema.build()).build()


def file_sink() -> FileSink:
    return FileSink.for_row_format(str(FOLDER / "out"), Encoder.simple_string_encoder()).build()


def numbers_in(topic: str) -> list[int]:
    return [int(value.partition(":")[0]) for value in values_in(SERVERS, topic)]


def read(topic: str) -> DataStream:
    stream = env.from_source(source_of(topic), WatermarkStrategy.no_watermarks(), topic)
    # Each subtask reads two partitions, in whatever order their records come.
    return stream.set_parallelism(2)


def shown(found: list[int]) -> tuple[bool, bool, int]:
    """Whether all numbers are there, whether each is once, and how many there are."""
    return set(found) == set(range(COUNT)), len(found) == len(set(found)), len(found)


EXACTLY, AT_LEAST = DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE

endless = source_of("numbers", is_bounded=False)
env.from_source(endless, WatermarkStrategy.no_watermarks(), "endless").print()
try:
    env.execute("endless")
except HeadraceError as error:
    print("ENDLESS", error)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(SLOTS)
faulted = read("numbers").rebalance().map(int, Types.LONG()).map(faulty, Types.LONG()).rebalance()
exact = faulted.map(Killing(), Types.STRING()).set_parallelism(SLOTS + 1)
exact.sink_to(sink_of("exact", EXACTLY)).set_parallelism(SLOTS + 1)
faulted.map(str, Types.STRING()).sink_to(sink_of("plain", AT_LEAST))
env.execute("copies")
print("FAULTS", *(not is_first(name) for name in ("raised", "worker", "executor")))
print("EXACT", *shown(numbers_in("exact")))
print("PLAIN", shown(numbers_in("plain"))[0])
print("STAGED", staged(".arrow"))

read("numbers").sink_to(sink_of("calm", AT_LEAST))
env.execute("calm")
print("CALM", *shown(numbers_in("calm")))


def doomed(name: str) -> JobClient:
    """Start a job of which one subtask prepares output for two sinks, and the other never does."""
    env.set_parallelism(2)
    lines = env.from_collection([f"{one}:{TEXT}" for one in (0, 1)], Types.STRING()).rebalance()
    many = lines.flat_map(lambda line: [line] * 1_000, Types.STRING())
    many.sink_to(sink_of("doomed", EXACTLY))
    many.map(lambda text: Line(name, text)).sink_to(file_sink())
    return env.execute_async(name)


def files_in_out() -> list[str]:
    return [path.name for path in (FOLDER / "out").rglob("*")]


failing = doomed("failing")
try:
    failing.get_job_execution_result().result()
except HeadraceError as error:
    print("ERROR", str(error).partition("\n")[0])
print("FAILED LEFT", staged(".arrow"), files_in_out(), numbers_in("doomed"))
cancelled = doomed("cancelled")
await_that((FOLDER / "cancelled-waits").exists)
print("PREPARED", len(staged(".arrow")) > 0, len(staged(".pending")) > 0)
cancelled.cancel().result()
try:
    cancelled.get_job_execution_result().result()
except HeadraceError as error:
    print("ERROR", str(error).partition("\n")[0])
print("CANCELED LEFT", staged(".arrow"), files_in_out(), numbers_in("doomed"))

# Written without end, in files of 1,000 bytes.
rolling = RollingPolicy.default_rolling_policy(part_size=1_000)
text_files = FileSink.for_row_format(str(FOLDER / "out"), Encoder.simple_string_encoder())
endless_numbers = env.from_source(
    NumberSequenceSource(0, 1 << 60), WatermarkStrategy.no_watermarks(), "endless numbers"
)
endless_numbers.sink_to(text_files.with_rolling_policy(rolling).build())
writing = env.execute_async("writing")
await_that(lambda: len(staged(".pending")) > 5)
writing.cancel().result()
writing.get_job_execution_result().exception()
print("WRITING LEFT", files_in_out())

commits, may_commit = threading.Event(), threading.Event()
commit_now = FileCommitter.commit


def commit_when_told(
    self: FileCommitter, key: str, checkpoint_id: int, committables: Sequence[bytes]
) -> None:
    commits.set()
    may_commit.wait()
    commit_now(self, key, checkpoint_id, committables)


FileCommitter.commit = commit_when_told
env.from_collection(["a", "b"], Types.STRING()).sink_to(file_sink())
late = env.execute_async("late")
commits.wait()
late.cancel().result()
may_commit.set()
late.get_job_execution_result().result()
written = [path for path in (FOLDER / "out").rglob("part-*") if path.is_file()]
lines = [line for path in written for line in path.read_text().splitlines()]
print("LATE", late.get_job_status().result().name, sorted(lines))
