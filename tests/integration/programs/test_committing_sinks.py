"""Programs that fail while they run, into each kind of sink: every row once, and what was seen stays."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.connectors.kafka.clients import KafkaRecord
from headrace.connectors.kafka.transaction_commit import read_to_end
from headrace.connectors.kafka.writers import RecordProducer
from headrace.connectors.postgres.options import JdbcConnectionOptions, connect
from headrace.datastream import MapFunction, RuntimeContext
from headrace.datastream.connectors.base import DeliveryGuarantee
from headrace.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    FileSink,
)
from headrace.datastream.connectors.jdbc import JdbcSink
from headrace.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from headrace.datastream.formats.parquet import ParquetBulkWriters
from headrace.functions.serialization import SimpleStringSchema
from headrace.functions.sink import Sink
from testkit.exactly_once import (
    Following,
    OutputFollower,
    Units,
    compare_output,
    lines_of_files,
    rows_of_parquet,
)
from tests.integration.kafka.mock_cluster import running_cluster
from tests.integration.postgres.postgres_server import running_server
from tests.integration.programs.gated import GATES, Gate, GatedSource

pytestmark = pytest.mark.integration

COUNT, WAIT_S = 600, 60
ROW = Types.ROW_NAMED(["name", "number"], [Types.STRING(), Types.INT()])
OPTIONS = {
    "execution.checkpointing.interval": "50 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "10 ms",
}


@dataclass(frozen=True)
class Target:
    """A sink for rows or texts, and what a reader sees of it."""

    sink: Sink
    read: Callable[[], Units]
    takes_rows: bool
    may_grow: bool


class FailOnce(MapFunction):
    """Passes numbers on as what the sink takes; fails at one of them, the first time."""

    def __init__(self, marker: Path, fails_at: int, takes_rows: bool) -> None:
        self._marker = marker
        self._fails_at = fails_at
        self._takes_rows = takes_rows

    def open(self, runtime_context: RuntimeContext) -> None:
        """Nothing is kept."""

    def map(self, value: Any) -> Any:
        if value == self._fails_at and not self._marker.exists():
            self._marker.touch()
            raise ValueError("it was to fail once")
        return (f"n{value}", value) if self._takes_rows else f"n{value}"


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    with running_cluster("numbers", "out") as servers:
        yield servers


@pytest.fixture(scope="module")
def postgres() -> Iterator[JdbcConnectionOptions]:
    with running_server() as options:
        yield options


def text_files(folder: Path) -> Target:
    builder = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    return Target(builder.build(), lambda: lines_of_files(folder), False, False)


def compacted_parquet(folder: Path) -> Target:
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    builder = FileSink.for_bulk_format(str(folder), ParquetBulkWriters.for_row_type())
    builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    builder.enable_compact(strategy, FileCompactor.parquet_file_compactor())
    return Target(builder.build(), lambda: rows_of_parquet(folder), True, False)


def table(options: JdbcConnectionOptions) -> Target:
    with connect(options) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (name text, number int)")

    def read() -> Units:
        with connect(options) as connection:
            return {"numbers": connection.execute("SELECT * FROM numbers ORDER BY ctid").fetchall()}

    sink = JdbcSink.exactly_once_sink("INSERT INTO numbers VALUES (?, ?)", ROW, options)
    return Target(sink, read, True, True)


def kafka_sink(servers: str, topic: str) -> Sink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(SimpleStringSchema())
    builder = KafkaSink.builder().set_bootstrap_servers(servers).set_transactional_id_prefix(topic)
    builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    return builder.set_record_serializer(schema.build()).build()


def records_of(servers: str, topic: str) -> Units:
    return {
        f"{topic}-{number}": [
            (record.value or b"").decode()
            for record in read_to_end({"bootstrap.servers": servers}, topic, number)
        ]
        for number in range(4)
    }


def topic_of(servers: str) -> Target:
    sink = kafka_sink(servers, "numbers")
    return Target(sink, lambda: records_of(servers, "numbers"), False, True)


@pytest.fixture(params=["text files", "compacted parquet", "table", "topic"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    match request.param:
        case "text files":
            return text_files(tmp_path / "target")
        case "compacted parquet":
            return compacted_parquet(tmp_path / "target")
        case "table":
            return table(request.getfixturevalue("postgres"))
        case _:
            return topic_of(request.getfixturevalue("kafka"))


def configure(env: StreamExecutionEnvironment) -> None:
    configuration = Configuration()
    for key, value in OPTIONS.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    env.set_parallelism(2)


def await_checkpoints(client: JobClient, count: int) -> None:
    """Ask until so many are complete: every answer comes after some of the job's steps."""
    while True:
        details = client.get_job_details().result(WAIT_S)
        if details.checkpoints.counts.completed >= count:
            return
        assert not details.status.is_terminal_state(), details.failure


def test_every_row_is_there_once_after_a_failure_and_never_goes_away_again(
    env: StreamExecutionEnvironment, target: Target, tmp_path: Path, request: Any
) -> None:
    configure(env)
    name = request.node.name
    gate = GATES[name] = Gate(0)
    numbers = env.from_source(
        GatedSource(name, COUNT), WatermarkStrategy.no_watermarks(), "numbers", Types.INT()
    )
    failing = FailOnce(tmp_path / "failed", 400, target.takes_rows)
    numbers.map(failing, ROW if target.takes_rows else Types.STRING()).sink_to(target.sink)
    client = env.execute_async(name)
    follower = OutputFollower(target.read, may_grow=target.may_grow)
    with Following(follower, interval_s=0.05):
        for reached in range(100, COUNT + 1, 100):
            gate.open_to(reached)
            await_checkpoints(client, reached // 100)
        client.get_job_execution_result().result(WAIT_S)
    rows: list[Any] = [f"n{n}" for n in range(COUNT)]
    expected = [(row, n) for n, row in enumerate(rows)] if target.takes_rows else rows
    verdict = compare_output(expected, follower.records)
    assert verdict.is_exact, verdict
    details = client.get_job_details().result(WAIT_S)
    assert details.checkpoints.counts.restored == 1


def test_from_topic_to_topic_every_record_goes_once(
    env: StreamExecutionEnvironment, kafka: str, tmp_path: Path
) -> None:
    configure(env)
    producer = RecordProducer({"bootstrap.servers": kafka})
    for number in range(COUNT):
        producer.send(KafkaRecord("in", None, str(number).encode(), number % 4))
    producer.flush()
    builder = KafkaSource.builder().set_bootstrap_servers(kafka).set_topics("in")
    builder.set_value_only_deserializer(SimpleStringSchema()).set_group_id("watchers")
    source = builder.set_bounded(KafkaOffsetsInitializer.latest()).build()
    texts = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "in")
    failing = FailOnce(tmp_path / "failed", 401, takes_rows=False)
    numbers = texts.map(lambda text: int(text), Types.INT())
    numbers.map(failing, Types.STRING()).sink_to(kafka_sink(kafka, "out"))
    env.execute_async("topics").get_job_execution_result().result(WAIT_S)
    found = itertools.chain.from_iterable(records_of(kafka, "out").values())
    verdict = compare_output([f"n{n}" for n in range(COUNT)], found)
    assert verdict.is_exact, verdict
    assert (tmp_path / "failed").exists()
