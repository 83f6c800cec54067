"""Snapshots to test with, made by hand and drawn."""

from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.checkpoint.handles import (
    Committable,
    OperatorSubtaskState,
    StateChunk,
    StateFile,
    StateTable,
)
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot, PendingCommit
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.checkpoint.storage.subtask_storage import digest_of
from headrace.core.barriers import SnapshotKind
from headrace.core.ids import JobId, OperatorId

KEY = MetadataKey(b"k" * 32)
JOB = JobId(b"j" * 16)
LINEAGE = "1a" * 16


def operator_id(number: int) -> OperatorId:
    return OperatorId(number.to_bytes(16, "big"))


def inside(content: bytes) -> StateFile:
    return StateFile("", content, len(content), digest_of(content))


def stored(uri: str, content: bytes = b"content", *, is_shared: bool = False) -> StateFile:
    return StateFile(uri, b"", len(content), digest_of(content), is_shared)


def keyed(
    file: StateFile, first: int = 0, last: int = 127, name: str = "counts", **attributes: str
) -> StateChunk:
    known = {"kind": "value"} | attributes
    return StateChunk(StateTable.KEYED, name, 3, file, (first, last), known)


def metadata_of(
    checkpoint_id: int,
    *files: StateFile,
    kind: SnapshotKind = SnapshotKind.CHECKPOINT,
    table: StateTable = StateTable.KEYED,
    **attributes: str,
) -> CheckpointMetadata:
    """A job of one operator with one subtask, whose state are these files, of which `attributes` are told."""
    chunks = (keyed(file, **attributes) for file in files)
    state = OperatorSubtaskState(tuple(replace(chunk, table=table) for chunk in chunks))
    operator = OperatorSnapshot(operator_id(1), "count", 1, 128, "counter", {0: state})
    return CheckpointMetadata(
        checkpoint_id, kind, 1_000 * checkpoint_id, JOB, "words", LINEAGE, 1, (operator,)
    )


_TEXTS = st.text(max_size=8)
_NAMES = st.text("abc-0", min_size=1, max_size=8)


def _files(folder: str) -> st.SearchStrategy[StateFile]:
    return st.one_of(
        st.binary(max_size=9).map(inside),
        st.builds(
            lambda name, content, is_shared: stored(
                f"{folder}/{name}", content, is_shared=is_shared
            ),
            _NAMES,
            st.binary(max_size=9),
            st.booleans(),
        ),
    )


def _chunks(folder: str) -> st.SearchStrategy[StateChunk]:
    return st.builds(
        StateChunk,
        st.sampled_from(StateTable),
        _TEXTS,
        st.integers(0, 1 << 40),
        _files(folder),
        st.none() | st.tuples(st.integers(0, 99), st.integers(0, 99)),
        st.dictionaries(_TEXTS, _TEXTS, max_size=2),
    )


_COMMITTABLES = st.lists(st.builds(Committable, _TEXTS, st.binary(max_size=9)), max_size=2).map(
    tuple
)
_IDS = st.binary(min_size=16, max_size=16)


def _operators(folder: str) -> st.SearchStrategy[OperatorSnapshot]:
    chunks = st.lists(_chunks(folder), max_size=3).map(tuple)
    states = st.builds(OperatorSubtaskState, chunks, _COMMITTABLES)
    return st.builds(
        OperatorSnapshot,
        operator_id=_IDS.map(OperatorId),
        name=_TEXTS,
        parallelism=st.integers(1, 9),
        max_parallelism=st.integers(9, 99),
        uid=st.none() | _TEXTS,
        subtasks=st.dictionaries(st.integers(0, 4), states, max_size=3),
        finished_subtasks=st.frozensets(st.integers(5, 8), max_size=2),
        coordinator_state=st.none() | st.binary(max_size=9),
    )


def drawn_metadata(folder: str) -> st.SearchStrategy[CheckpointMetadata]:
    """Any metadata whose files lie in `folder`."""
    pending = st.builds(PendingCommit, st.integers(1, 99), _IDS.map(OperatorId), _COMMITTABLES)
    return st.builds(
        CheckpointMetadata,
        checkpoint_id=st.integers(1, 1 << 40),
        kind=st.sampled_from(SnapshotKind),
        timestamp_ms=st.integers(0, 1 << 41),
        job_id=_IDS.map(JobId),
        job_name=_TEXTS,
        lineage=_TEXTS,
        epoch=st.integers(1, 99),
        operators=st.lists(_operators(folder), max_size=3).map(tuple),
        pending_commits=st.lists(pending, max_size=2).map(tuple),
    )
