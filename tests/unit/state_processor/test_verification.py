"""Verification of a snapshot: what is missing, changed or not to be understood is told with its file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import fs

from headrace.checkpoint.handles import (
    ChannelPart,
    ChannelRole,
    OperatorSubtaskState,
    ReceiverMapping,
    StateChunk,
    StateFile,
    StateTable,
)
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.checkpoint.storage.file_systems import register_file_system
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.record_batch import stream_bytes
from headrace.state.keyed_chunks import parquet_of
from headrace.state_processor.verification import unsound_files
from headrace.testing.operator_harness import HARNESS_KEY_GROUPS, Rows
from testkit.faulty_file_system import FaultyHandler, StorageFaults
from tests.unit.checkpoint.snapshots import inside, metadata_of, operator_id, stored
from tests.unit.operators.recutting_cases import CASES
from tests.unit.operators.recutting_steps import SHOWN, steps_of
from tests.unit.state_processor.saved import (
    FILES,
    Subtask,
    fill,
    saved,
    savepoint,
    settings_in,
    storage_of,
)


@pytest.fixture
def metadata(tmp_path: Path) -> CheckpointMetadata:
    """Four keyed states and timers of two subtasks, in files."""
    return savepoint(tmp_path / "saved", settings_in(tmp_path, **FILES)).metadata


def with_chunks(
    metadata: CheckpointMetadata, change: Callable[[StateChunk], StateChunk]
) -> CheckpointMetadata:
    """Metadata that says something else of the chunks of its first subtask."""
    (operator,) = metadata.operators
    first = OperatorSubtaskState(tuple(map(change, operator.subtasks[0].chunks)))
    subtasks = {**operator.subtasks, 0: first}
    return msgspec.structs.replace(
        metadata, operators=(msgspec.structs.replace(operator, subtasks=subtasks),)
    )


def of_count(change: Callable[[StateChunk], StateChunk]) -> Callable[[StateChunk], StateChunk]:
    return lambda chunk: change(chunk) if chunk.name == "count" else chunk


def count_file(metadata: CheckpointMetadata) -> Path:
    (chunk,) = [one for one in metadata.operators[0].subtasks[0].chunks if one.name == "count"]
    return Path(chunk.file.uri)


PLACE = "'count words' (uid 'counter'), subtask 0, keyed 'count'"


def only_fault(metadata: CheckpointMetadata) -> str:
    (fault,) = unsound_files(metadata)
    assert fault.place == PLACE
    return fault.reason


def test_a_savepoint_is_whole_whether_its_state_lies_in_files_or_within(tmp_path: Path) -> None:
    for name, more in (("files", FILES), ("within", {})):
        saved = savepoint(tmp_path / name, settings_in(tmp_path, **more)).metadata
        assert bool(list(saved.files())) == (name == "files")
        assert list(unsound_files(saved)) == []


def test_a_file_that_is_gone_cut_off_or_changed_is_told_by_name(
    metadata: CheckpointMetadata,
) -> None:
    file = count_file(metadata)
    content = file.read_bytes()
    for broken, said in (
        (content[:-1], f"it has {len(content) - 1} bytes, but had {len(content)}"),
        (content[:-1] + b"?", "its digest is"),
    ):
        file.write_bytes(broken)
        reason = only_fault(metadata)
        assert str(file) in reason and said in reason
    file.unlink()
    assert str(file) in only_fault(metadata)


def test_what_was_written_wrongly_is_told_though_its_digest_fits(
    metadata: CheckpointMetadata,
) -> None:
    wrong = b"these are no columns" * 3
    broken = with_chunks(
        metadata, of_count(lambda chunk: msgspec.structs.replace(chunk, file=inside(wrong)))
    )
    assert "its schema cannot be read" in only_fault(broken)


def test_rows_are_as_many_as_the_metadata_says(metadata: CheckpointMetadata) -> None:
    broken = with_chunks(
        metadata,
        of_count(lambda chunk: msgspec.structs.replace(chunk, row_count=chunk.row_count + 1)),
    )
    assert "according to the metadata" in only_fault(broken)


def test_columns_are_those_of_the_states_schema(metadata: CheckpointMetadata) -> None:
    file = inside(bytes(parquet_of([pa.table({"key_group": [1], "key": [7]})])))
    broken = with_chunks(
        metadata,
        of_count(lambda chunk: msgspec.structs.replace(chunk, file=file, row_count=1)),
    )
    assert "the file has no column 'value'" in only_fault(broken)
    broken = with_chunks(
        metadata,
        of_count(
            lambda chunk: msgspec.structs.replace(
                chunk, attributes={**chunk.attributes, "schema": "bm9uZQ=="}
            )
        ),
    )
    assert "its schema cannot be read" in only_fault(broken)


def counting_texts(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """With a first subtask whose counts are texts."""
    columns = pa.table(
        {
            "key_group": pa.array([1], pa.int32()),
            "key": pa.array([7], pa.int64()),
            "value": pa.array(["text"]),
        }
    )
    file = inside(bytes(parquet_of([columns])))
    return with_chunks(
        metadata,
        of_count(lambda chunk: msgspec.structs.replace(chunk, file=file, row_count=1)),
    )


def test_states_of_one_name_may_be_of_other_types_in_operators_of_like_names(
    metadata: CheckpointMetadata,
) -> None:
    operators = [
        msgspec.structs.replace(
            one,
            operator_id=operator_id(number),
            name="sum, subtask totals",
            uid=f"sum-{number}",
            subtasks={0: one.subtasks[0]},
        )
        for number, one in enumerate([*metadata.operators, *counting_texts(metadata).operators])
    ]
    of_both = msgspec.structs.replace(metadata, operators=tuple(operators))
    assert not [one for one in unsound_files(of_both) if "another file" in one.reason]


def test_files_of_one_state_agree_about_its_types(metadata: CheckpointMetadata) -> None:
    broken = counting_texts(metadata)
    reasons = [one.reason for one in unsound_files(broken)]
    assert any(
        "'value' is" in reason and "another file of the state" in reason for reason in reasons
    )


PART = ChannelPart(ChannelRole.INPUT, "0" * 32, 0, 0, 1, 1, 128, ReceiverMapping.ROUND_ROBIN)


def in_flight(file: StateFile, **changes: str) -> CheckpointMetadata:
    attributes = PART.attributes() | changes
    chunk = StateChunk(StateTable.CHANNELS, "channel", 2, file, None, attributes)
    state = OperatorSubtaskState((chunk,))
    operator = OperatorSnapshot(operator_id(1), "map", 1, 128, None, {0: state})
    return msgspec.structs.replace(metadata_of(7), operators=(operator,))


def test_records_in_flight_are_read_to_their_end() -> None:
    batch = pa.record_batch({"value": [1, 2]})
    content = stream_bytes(batch.schema, [batch])
    assert list(unsound_files(in_flight(inside(content)))) == []
    (fault,) = unsound_files(in_flight(inside(content[:-30])))
    assert "is damaged" in fault.reason
    (fault,) = unsound_files(in_flight(inside(content), role="nobody's"))
    assert "cannot be assigned to a channel" in fault.reason


class CountedReads(FaultyHandler):
    """A file system of this machine that notes which files are opened for reading."""

    def __init__(self) -> None:
        super().__init__(fs.LocalFileSystem(), StorageFaults())
        self.opened: list[str] = []

    def open_input_stream(self, path: str) -> Any:
        self.opened.append(path)
        return super().open_input_stream(path)

    def open_input_file(self, path: str) -> Any:
        self.opened.append(path)
        return super().open_input_file(path)


def test_records_in_flight_are_read_once(tmp_path: Path) -> None:
    batch = pa.record_batch({"value": [1, 2]})
    content = stream_bytes(batch.schema, [batch])
    path = tmp_path / "channels"
    path.write_bytes(content)
    handler = CountedReads()
    counted = fs.PyFileSystem(handler)
    register_file_system("counted", lambda uri: (counted, uri.removeprefix("counted://")))
    file = stored(f"counted://{path}", content)
    assert list(unsound_files(in_flight(file))) == []
    assert handler.opened == [str(path)]
    path.write_bytes(content[:-1] + b"!")
    (fault,) = unsound_files(in_flight(file))
    assert "its digest is" in fault.reason


@pytest.mark.parametrize("kind", [kind for kind, case in CASES.items() if case.is_shippable])
def test_what_any_operator_stores_is_whole(tmp_path: Path, kind: str) -> None:
    case = CASES[kind]
    harness = case.create()
    for step in steps_of(case, SHOWN[:6]):
        if isinstance(step, Rows):
            case.feed(harness, harness.batch(step), step.input_number)
        else:
            harness.perform(step)
    state = harness.snapshot()
    snapshot = saved(tmp_path, settings_in(tmp_path), [state], max_parallelism=HARNESS_KEY_GROUPS)
    assert list(unsound_files(snapshot.metadata)) == []


def test_files_of_rocksdb_are_compared_by_length_and_digest(tmp_path: Path) -> None:
    own = settings_in(
        tmp_path,
        **FILES,
        **{"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "true"},
    )
    one = Subtask(own, scratch=str(tmp_path))
    fill(one, range(3))
    writer = storage_of(tmp_path / "chk-7", own)
    (frozen, *others) = one.states.freeze(7, CheckpointOptions())
    chunks = [chunk for part in (frozen, *others) for chunk in part.write(writer)]
    one.states.close()
    assert {chunk.table for chunk in chunks} == {StateTable.NATIVE}
    snapshot = saved(
        tmp_path / "chk-7", own, [OperatorSubtaskState(tuple(chunks))], SnapshotKind.CHECKPOINT
    )
    assert list(unsound_files(snapshot.metadata)) == []
    file = Path(max(snapshot.metadata.files(), key=lambda one: one.size_bytes).uri)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    (fault,) = unsound_files(snapshot.metadata)
    assert str(file) in fault.reason and "its digest is" in fault.reason
