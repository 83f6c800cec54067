"""Exactly once into Kafka: brokers that are a model, with open, aborted and fenced transactions, killed anywhere."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY
from headrace.connectors.kafka import writers
from headrace.connectors.kafka.clients import (
    ControlRecordError,
    KafkaError,
    KafkaFencedError,
    KafkaRecord,
    RecordsExpiredError,
)
from headrace.connectors.kafka.staged_records import (
    KafkaPayload,
    StagedFileChangedError,
    StagedRecords,
    staged_records,
    to_ipc_stream,
)
from headrace.connectors.kafka.transaction_commit import (
    KafkaCommitter,
    StagedRecordsLostError,
    last_ids,
    read_to_end,
)
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType, RecordBatch
from headrace.core.types.type_info import Types
from headrace.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaTopicSelector,
)
from headrace.functions.serialization import SerializationSchema, SimpleStringSchema
from headrace.functions.sink import FINAL_CHECKPOINT, DeliveryGuarantee, commit_key
from headrace.graph.pipeline_options import RUNTIME_MODE
from testkit.exactly_once import compare_output
from tests.unit.connectors.connector_contexts import ConnectorContext
from tests.unit.connectors.sink_world import WITH_CHECKPOINTS, Crash, SinkWorld

TEXT = Types.STRING()
CONTROL = "headrace-commits"


class Key(SerializationSchema):
    """What stands before the colon."""

    def serialize(self, element: Any) -> bytes:
        return str(element).split(":")[0].encode()


SCHEMA = (
    KafkaRecordSerializationSchema.builder()
    .set_topic("results")
    .set_key_serialization_schema(Key())
    .set_value_serialization_schema(SimpleStringSchema())
    .build()
)


def sink() -> KafkaSink:
    builder = KafkaSink.builder().set_bootstrap_servers("nowhere:9092")
    builder = builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    return builder.set_transactional_id_prefix("tests").set_record_serializer(SCHEMA).build()


@dataclass
class ModelBrokers:
    """Transactions as brokers keep them. `dies_after`: records that a producer still writes, then its process ends.

    `dies_at_answer`: the transaction is committed, and nobody hears of it.
    """

    committed: list[KafkaRecord] = field(default_factory=list[KafkaRecord])
    epochs: Counter[str] = field(default_factory=Counter[str])
    open: dict[str, list[KafkaRecord]] = field(default_factory=dict[str, list[KafkaRecord]])
    dies_after: int | None = None
    dies_at_answer: bool = False
    reads: int = 0

    def producer(self, transactional_id: str) -> "ModelProducer":
        self.epochs[transactional_id] += 1
        self.open.pop(transactional_id, None)
        return ModelProducer(self, transactional_id, self.epochs[transactional_id])

    def control_records(self, topic: str) -> Sequence[KafkaRecord]:
        self.reads += 1
        return [one for one in self.committed if one.topic == topic]

    def values(self) -> list[str]:
        return [one.value.decode() for one in self.committed if one.value and one.topic != CONTROL]


@dataclass
class ModelProducer:
    brokers: ModelBrokers
    transactional_id: str
    epoch: int
    is_closed: bool = False

    def write(self, records: Iterable[KafkaRecord]) -> None:
        brokers = self.brokers
        if brokers.epochs[self.transactional_id] != self.epoch:
            raise KafkaFencedError("fenced")
        transaction = brokers.open[self.transactional_id] = []
        for record in records:
            if brokers.dies_after == len(transaction):
                brokers.dies_after = None
                raise Crash
            transaction.append(record)
        brokers.committed += brokers.open.pop(self.transactional_id)
        if brokers.dies_at_answer:
            brokers.dies_at_answer = False
            raise Crash

    def close(self) -> None:
        self.is_closed = True


def payload() -> KafkaPayload:
    committer = sink().committer()
    assert committer is not None
    decoded: Any = msgspec.msgpack.decode(committer[1], type=KafkaPayload)
    return decoded


def world_of(brokers: ModelBrokers, folder: Path | None = None) -> SinkWorld:
    more = {CHECKPOINT_DIRECTORY.key: str(folder)} if folder else {}
    settings = WITH_CHECKPOINTS.with_values(more)
    return SinkWorld(
        sink(),
        TEXT,
        lambda: KafkaCommitter(payload(), brokers),
        lambda s, n: f"{s}:{n}",
        settings=settings,
    )


def test_a_checkpoint_s_records_appear_in_order_with_a_record_of_its_id() -> None:
    brokers = ModelBrokers()
    world = world_of(brokers)
    world.write(0, 2)
    world.write(1, 1)
    world.publish()
    assert brokers.committed == []
    world.commit()
    assert brokers.values() == ["0:0", "0:1", "1:0"]
    assert brokers.committed[0].key == b"0"
    marker = brokers.committed[-1]
    assert (marker.topic, marker.key, marker.value) == (CONTROL, b"lineage/sink", b"1")


def test_the_control_topic_says_which_checkpoint_was_written_last() -> None:
    world = world_of(ModelBrokers())
    assert world.last_committed() is None
    world.write(0, 2)
    world.checkpoint()
    world.committer = world.new_committer()
    assert world.last_committed() == 1


def test_an_id_that_is_written_already_is_passed_over_by_a_driver_that_knows_nothing() -> None:
    brokers = ModelBrokers()
    world = world_of(brokers)
    world.write(0, 1)
    checkpoint_id = world.publish()
    assert world.latest is not None
    contents = world.latest.pending[checkpoint_id]
    brokers.dies_at_answer = True
    with pytest.raises(Crash):
        world.commit()
    for _ in range(2):
        world.new_committer().commit(
            commit_key("lineage", "sink", checkpoint_id), checkpoint_id, contents
        )
    assert brokers.values() == ["0:0"]


def test_the_control_topic_is_read_again_only_after_an_error() -> None:
    brokers = ModelBrokers()
    world = world_of(brokers)
    for _ in range(3):
        world.write(0, 1)
        world.checkpoint()
    assert brokers.reads == 1
    brokers.dies_after = 0
    world.write(0, 1)
    world.publish()
    with pytest.raises(Crash):
        world.commit()
    world.commit()
    assert brokers.reads == 2
    assert brokers.values() == ["0:0", "0:1", "0:2", "0:3"]


def test_a_zombie_driver_cannot_commit_any_more() -> None:
    brokers = ModelBrokers()
    world = world_of(brokers)
    world.write(0, 1)
    world.checkpoint()
    zombie = world.committer
    world.crash()
    world.write(0, 1)
    world.checkpoint()
    content = msgspec.msgpack.encode(
        StagedRecords(to_ipc_stream([KafkaRecord("results", None, b"late")]), "", 1, 0, 0)
    )
    with pytest.raises(KafkaFencedError):
        zombie.commit("lineage/sink/9", 9, [content])
    assert brokers.values() == ["0:0", "0:1"]


def test_much_data_waits_in_files_which_go_with_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "INLINE_SIZE_MAX", 0)
    monkeypatch.setattr(writers, "FILE_SIZE_BYTES", 8)
    brokers = ModelBrokers()
    world = world_of(brokers, tmp_path)
    world.write(0, 5)
    world.publish()
    assert len(list(tmp_path.rglob("*.arrow"))) == 3
    world.commit()
    assert brokers.values() == [f"0:{number}" for number in range(5)]
    assert list((tmp_path / "kafka-staging").iterdir()) == []


def test_too_much_for_a_checkpoint_without_a_folder_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "WITHOUT_FOLDER_SIZE_MAX", 2000)
    world = world_of(ModelBrokers())
    for _ in range(3):
        world.write(0, 1)
        world.checkpoint()  # each is small
    world.write(0, 2000)
    with pytest.raises(ProgramError, match=r"set execution\.checkpointing\.dir .*checkpoints more"):
        world.checkpoint()


def test_too_much_for_the_end_of_a_job_in_batch_mode_is_refused_without_a_word_of_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writers, "WITHOUT_FOLDER_SIZE_MAX", 2000)
    settings = Settings({RUNTIME_MODE.key: "BATCH"})
    writer = sink().create_writer(ConnectorContext(TEXT, settings=settings))
    writer.write_batch(RecordBatch.of_rows(BatchType(TEXT), ["." * 3000]))
    with pytest.raises(
        ProgramError, match=r"wait for the job's end.*dir to a folder that.*can read too$"
    ):
        writer.prepare_commit(FINAL_CHECKPOINT)


def test_staged_files_that_somebody_deleted_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "INLINE_SIZE_MAX", 0)
    world = world_of(ModelBrokers(), tmp_path)
    world.write(0, 1)
    world.publish()
    for file in tmp_path.rglob("*.arrow"):
        file.unlink()
    with pytest.raises(StagedRecordsLostError, match="does not show that they were written"):
        world.commit()


def test_what_a_writer_did_not_hand_over_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "INLINE_SIZE_MAX", 0)
    monkeypatch.setattr(writers, "FILE_SIZE_BYTES", 1)
    world = world_of(ModelBrokers(), tmp_path)
    world.write(0, 2)
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    world.writers[0].close()
    assert list(tmp_path.rglob("*.arrow")) == []


def test_a_job_that_commits_no_more_leaves_no_file_and_no_open_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "INLINE_SIZE_MAX", 0)
    brokers = ModelBrokers()
    world = world_of(brokers, tmp_path)
    world.write(0, 2)
    world.abort()
    world.attempt += 1
    world.start()
    world.write(1, 1)
    world.publish()
    (owner,) = (tmp_path / "kafka-staging").iterdir()
    (owner.parent / "other").mkdir()
    (owner.parent / "other" / "0-0-ab-0.arrow").touch()
    committer = KafkaCommitter(payload(), brokers, world.settings)
    epochs = brokers.epochs.copy()
    committer.delete_leftovers("lineage/sink", "other owner")
    assert brokers.epochs == epochs, "nobody is shut out where nothing was begun"
    assert len(list(owner.iterdir())) >= 2
    brokers.dies_after = 1
    assert world.latest is not None
    contents = [one for pending in world.latest.pending.values() for one in pending]
    with pytest.raises(Crash):
        committer.commit("lineage/sink/9", 9, contents)
    assert len(brokers.open) == 1
    for _ in range(2):
        committer.delete_leftovers("lineage/sink", owner.name)
    assert brokers.open == {} and brokers.values() == []
    assert [one.name for one in tmp_path.rglob("*.arrow")] == ["0-0-ab-0.arrow"]
    assert not owner.exists()


@given(
    st.lists(
        st.builds(
            KafkaRecord,
            st.sampled_from(["a", "é"]),
            st.none() | st.binary(max_size=3),
            st.none() | st.binary(max_size=3),
            st.none(),
            st.none() | st.integers(0, 2**60),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_records_survive_the_way_through_a_checkpoint(records: list[KafkaRecord]) -> None:
    staged = StagedRecords(to_ipc_stream(records), "", len(records), 0, 0)
    assert list(staged_records(staged)) == records


def test_the_highest_id_of_each_scope_counts_whatever_the_order() -> None:
    records = [
        KafkaRecord(CONTROL, scope, value)
        for scope, value in [(b"a", b"2"), (b"b", b"7"), (b"a", b"1"), (b"c", None)]
    ]
    assert last_ids(records) == {"a": 2, "b": 7}


@pytest.mark.parametrize(("key", "value"), [(b"a", b"x"), (b"a", b"9" * 5000), (b"\xff", b"2")])
def test_a_record_that_no_sink_wrote_is_refused_until_it_is_taken_back(
    key: bytes, value: bytes
) -> None:
    records = [KafkaRecord(CONTROL, b"b", b"7"), KafkaRecord(CONTROL, key, value, offset=3)]
    with pytest.raises(ControlRecordError, match=f"'{CONTROL}' holds a record at offset 3"):
        last_ids(records)
    assert last_ids([*records, KafkaRecord(CONTROL, key, None)]) == {"b": 7}


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1), st.integers(0, 3)),
    st.sampled_from([("checkpoint",), ("abort",), ("publish",), ("crash",), ("answer lost",)]),
    st.tuples(st.just("crash within"), st.integers(0, 6)),
    st.tuples(st.just("error within"), st.integers(0, 6)),
)


@given(steps=st.lists(STEPS, max_size=25), in_files=st.booleans())
def test_every_record_is_committed_once_and_in_order_whatever_comes_between(
    steps: list[Any], in_files: bool
) -> None:
    with (
        TemporaryDirectory() as folder,
        patch.object(writers, "INLINE_SIZE_MAX", 0),
        patch.object(writers, "FILE_SIZE_BYTES", 8),
    ):
        brokers = ModelBrokers()
        world = world_of(brokers, Path(folder) if in_files else None)
        for step in steps:
            take(world, brokers, step)
        world.finish()
        verdict = compare_output(
            world.expected,
            brokers.values(),
            key_of=lambda text: text.split(":")[0],
            position_of=lambda text: int(text.split(":")[1]),
        )
        assert verdict.is_exact, verdict


def take(world: SinkWorld, brokers: ModelBrokers, step: tuple[Any, ...]) -> None:
    match step:
        case ("answer lost",):
            brokers.dies_at_answer = True
            commit_or_die(world, restart=True)
        case ("crash within", count):
            brokers.dies_after = count
            commit_or_die(world, restart=True)
        case ("error within", count):
            brokers.dies_after = count
            commit_or_die(world, restart=False)
        case _:
            world.take(step)
    brokers.dies_after, brokers.dies_at_answer = None, False


def commit_or_die(world: SinkWorld, *, restart: bool) -> None:
    world.publish()
    try:
        world.commit()
    except Crash:
        if restart:
            world.crash()
        else:
            world.commit()


# -- what is refused, and what a record becomes


def test_a_sink_says_what_it_still_needs() -> None:
    with pytest.raises(ProgramError, match="set_bootstrap_servers"):
        KafkaSink.builder().build()
    builder = KafkaSink.builder().set_bootstrap_servers("h:1")
    with pytest.raises(ProgramError, match="set_record_serializer"):
        builder.build()
    builder.set_record_serializer(SCHEMA)
    assert builder.build().committer() is None
    with pytest.raises(ProgramError, match="set_transactional_id_prefix"):
        builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()
    with pytest.raises(ProgramError, match="makes its own id from the prefix"):
        builder.set_property("transactional.id", "mine")


def test_a_topic_is_chosen_by_name_or_by_record() -> None:
    class Selector(KafkaTopicSelector):
        def apply(self, data: Any) -> str:
            return f"topic-{data}"

    builder = KafkaRecordSerializationSchema.builder()
    with pytest.raises(ProgramError, match="a topic or a topic selector"):
        builder.build()
    builder.set_topic_selector(Selector())
    with pytest.raises(ProgramError, match="set_value_serialization_schema"):
        builder.build()
    schema = builder.set_value_serialization_schema(SimpleStringSchema()).build()
    assert schema.serialize("x", 5) == KafkaRecord("topic-x", None, b"x", None, 5)


def test_records_carry_their_event_times() -> None:
    context = ConnectorContext(TEXT, settings=WITH_CHECKPOINTS)
    writer = sink().create_writer(context)
    batch = RecordBatch.of_rows(BatchType(TEXT), ["a", "b"], timestamps=_times(7, -(2**63)))
    writer.write_batch(batch)
    (content,) = writer.prepare_commit(1)
    staged: Any = msgspec.msgpack.decode(content, type=StagedRecords)
    assert [one.timestamp_ms for one in staged_records(staged)] == [7, None]


def _times(*values: int) -> Any:
    import numpy as np

    return np.array(values, np.int64)


def test_errors_of_brokers_are_tried_again_and_fencing_is_not() -> None:
    assert (KafkaError("x").recoverable, KafkaFencedError("x").recoverable) == (True, False)


def test_a_control_topic_that_forgets_is_an_error_instead_of_a_guess() -> None:
    class Forgetful:
        def get_watermark_offsets(self, *_: Any, timeout: float) -> tuple[int, int]:
            return 5, 9

        def close(self) -> None:
            """Nothing is open."""

    with (
        patch(
            "headrace.connectors.kafka.transaction_commit.create_consumer",
            lambda config: Forgetful(),
        ),
        pytest.raises(RecordsExpiredError, match=r"must be compact") as caught,
    ):
        read_to_end({}, CONTROL, 0)
    assert not caught.value.recoverable


def test_a_staged_file_that_somebody_changed_is_refused_before_arrow_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "INLINE_SIZE_MAX", 0)
    brokers = ModelBrokers()
    world = world_of(brokers, tmp_path)
    world.write(0, 3)
    world.publish()
    (file,) = tmp_path.rglob("*.arrow")
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    with pytest.raises(StagedFileChangedError, match="were changed after they were written"):
        world.commit()
    assert brokers.committed == []
