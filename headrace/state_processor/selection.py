"""Which snapshot, and which operator of it, a user means."""

from collections.abc import Sequence

from headrace.checkpoint.checkpoint_storage import (
    is_published,
    load_snapshot,
    nearby_snapshots,
)
from headrace.checkpoint.errors import MetadataMissingError
from headrace.checkpoint.file_systems import file_name_of, parent_uri
from headrace.checkpoint.inspection import find_snapshots
from headrace.checkpoint.metadata import CheckpointMetadata, CompletedCheckpoint, OperatorSnapshot
from headrace.core.config import Settings
from headrace.core.named_operators import operators_called
from headrace.state_processor.errors import UnknownStateError

LATEST = "latest"
_CHECKPOINT_PREFIX = "chk-"


def snapshot_uri(path: str, checkpoint: str = LATEST) -> str:
    """Return the folder of one snapshot: of the one at `path`, or of the job's that lies there.

    `checkpoint`: an id, or `latest`. UnknownStateError, MetadataMissingError, CheckpointStorageError.
    """
    folders = find_snapshots(path)
    complete = [one for one in folders if is_published(one)]
    if not complete:
        raise MetadataMissingError(path, nearby_snapshots(path))
    jobs = sorted({parent_uri(one) for one in complete})
    if len(jobs) > 1:
        raise UnknownStateError(f"{path} holds checkpoints of several jobs: name one job", jobs)
    if complete == folders and len(complete) == 1 and checkpoint == LATEST:
        return complete[0]
    by_id = {
        int(name.removeprefix(_CHECKPOINT_PREFIX)): one
        for one in complete
        if (name := file_name_of(one)).startswith(_CHECKPOINT_PREFIX)
    }
    if checkpoint == LATEST and by_id:
        return by_id[max(by_id)]
    if checkpoint.isdecimal() and int(checkpoint) in by_id:
        return by_id[int(checkpoint)]
    if checkpoint == LATEST:
        raise UnknownStateError(f"{path} holds several savepoints: name one of them", complete)
    known = [f"{number}" for number in sorted(by_id)]
    raise UnknownStateError(
        f"checkpoint {checkpoint} is not at {path}: it was never completed, or was subsumed", known
    )


def open_snapshot(path: str, settings: Settings, checkpoint: str = LATEST) -> CompletedCheckpoint:
    """Return the snapshot, whose metadata was written with the user's key. MetadataError, UnknownStateError."""
    return load_snapshot(snapshot_uri(path, checkpoint), settings)


def operator_in(metadata: CheckpointMetadata, named: str) -> OperatorSnapshot:
    """Return the operator of this uid, else of this id, else of this name. UnknownStateError."""
    matches = operators_called(metadata.operators, named)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownStateError(f"several operators are '{named}': name one by id", _ids(matches))
    raise UnknownStateError(
        f"snapshot {metadata.checkpoint_id} has no operator '{named}'",
        [one.title for one in metadata.operators],
    )


def _ids(operators: Sequence[OperatorSnapshot]) -> list[str]:
    return [f"{one.title} with id {one.operator_id.hex()}" for one in operators]
