"""Tables that show inspected snapshots. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from headrace.checkpoint.handles import EXPIRED_ROWS, StateChunk
from headrace.checkpoint.metadata import CheckpointMetadata, OperatorSnapshot
from headrace.checkpoint.retention.inspection import InspectedSnapshot, SnapshotCondition
from headrace.checkpoint.storage.file_systems import file_name_of
from headrace.checkpoint.storage.metadata_format import METADATA_NAME
from headrace.cli.figures import utc_text
from headrace.core.config import bytes_text
from headrace.state_processor.verification import DamagedFile, Verification


def snapshots_table(snapshots: Sequence[InspectedSnapshot]) -> Table:
    """Return a table with a line for each snapshot."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("id", "time", "kind", "job"):
        table.add_column(name)
    for name in ("operators", "state"):
        table.add_column(name, justify="right")
    table.add_column("condition")
    table.add_column("folder", overflow="fold")
    for one in snapshots:
        table.add_row(*_summary(one.metadata), _condition(one), file_name_of(one.uri))
    return table


def operators_table(metadata: CheckpointMetadata) -> Table:
    """Return a table with a line for each operator of a snapshot."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("operator", "uid"):
        table.add_column(name, overflow="fold")
    for name in ("parallelism", "of", "state", "rows"):
        table.add_column(name, justify="right")
    table.add_column("states", overflow="fold")
    for operator in metadata.operators:
        table.add_row(
            operator.name,
            operator.uid or "-",
            str(operator.parallelism),
            str(operator.max_parallelism),
            bytes_text(operator.size_bytes),
            "-" if operator.row_count is None else f"{operator.row_count:,}",
            _states(operator),
        )
    return table


def facts(snapshot: InspectedSnapshot, metadata: CheckpointMetadata) -> list[tuple[str, str]]:
    """Return names and values that describe a snapshot as a whole."""
    pending_count = sum(len(one.committables) for one in metadata.pending_commits) + sum(
        len(state.committables)
        for operator in metadata.operators
        for state in operator.subtasks.values()
    )
    return [
        ("snapshot", snapshot.uri),
        ("condition", _condition(snapshot).plain),
        ("id", str(metadata.checkpoint_id)),
        ("kind", _kind(metadata)),
        ("time", utc_text(metadata.timestamp_ms)),
        ("job", f"{metadata.job_name} ({metadata.job_id})"),
        ("lineage", f"{metadata.lineage}, epoch {metadata.epoch}"),
        ("state", bytes_text(metadata.size_bytes)),
        ("files", str(len({file.uri for file in metadata.files()}))),
        ("prepared output", str(pending_count)),
        *_edit_facts(metadata),
    ]


def _edit_facts(metadata: CheckpointMetadata) -> list[tuple[str, str]]:
    """Return names and values that describe the edit that made the snapshot; none if no edit made it."""
    edit = metadata.edit
    if edit is None:
        return []
    changes = [
        f"{one.state or one.operator}: {one.action}, {one.row_count_before:,} -> {one.row_count:,} rows"
        + (
            f", {one.removed_expired_count:,} expired ones left away"
            if one.removed_expired_count
            else ""
        )
        for one in edit.changes
    ]
    made = f"by {edit.author}, {utc_text(edit.timestamp_ms)}: {edit.reason}"
    return [
        ("edited from", edit.parent_uri),
        ("edited", made),
        *(("", change) for change in changes),
    ]


def verification_lines(verification: Verification) -> list[str]:
    """Return the lines that report the result of a verification."""
    if verification.is_sound:
        return ["every file is unchanged"]
    return [
        *(f"{one.place}: {one.reason}" for one in verification.damaged),
        *(f"{place}: not read" for place in verification.unverified),
    ]


def verified_line(snapshot: InspectedSnapshot) -> str:
    """Return the line that reports a snapshot as complete and unchanged, with the amount of data that was read."""
    metadata = snapshot.metadata
    assert metadata is not None, "a snapshot that cannot be read is not verified"
    file_count = len({file.uri for file in metadata.files()})
    return (
        f"{_kind(metadata)} {metadata.checkpoint_id} of job '{metadata.job_name}' is whole: "
        f"{bytes_text(metadata.size_bytes)} of {len(metadata.operators)} operator(s) in {file_count} file(s) and in "
        "the metadata itself are unchanged"
    )


def fault_lines(snapshot: InspectedSnapshot, faults: Sequence[DamagedFile]) -> list[str]:
    """Return the lines that explain why a snapshot is damaged; each names a file."""
    lines: list[str] = []
    uri = f"{snapshot.uri}/{METADATA_NAME}"
    if snapshot.condition is SnapshotCondition.UNPUBLISHED:
        lines.append(f"{uri} is missing: {snapshot.reason}")
    elif snapshot.reason:
        lines.append(snapshot.reason if uri in snapshot.reason else f"{uri}: {snapshot.reason}")
    return [*lines, *(f"{one.reason} ({one.place})" for one in faults)]


def snapshot_json(
    snapshot: InspectedSnapshot, verification: Verification | None = None
) -> dict[str, Any]:
    """Return a snapshot as JSON, with the result of its verification, if there is one.

    `damaged` is null if nothing could be checked; `unverified` lists what was not checked, and why.
    """
    shown: dict[str, Any] = {"location": snapshot.uri, "condition": snapshot.condition.value}
    if snapshot.reason:
        shown["reason"] = snapshot.reason
    metadata = snapshot.metadata
    if metadata is not None:
        shown |= {
            "checkpoint-id": metadata.checkpoint_id,
            "kind": metadata.kind.name,
            "timestamp-ms": metadata.timestamp_ms,
            "job-id": metadata.job_id.hex(),
            "job-name": metadata.job_name,
            "lineage": metadata.lineage,
            "epoch": metadata.epoch,
            "size-bytes": metadata.size_bytes,
            "operators": [
                {
                    "id": one.operator_id.hex(),
                    "uid": one.uid,
                    "name": one.name,
                    "parallelism": one.parallelism,
                    "max-parallelism": one.max_parallelism,
                    "size-bytes": one.size_bytes,
                    "row-count": one.row_count,
                    "expired-row-count": _expired_row_count(one),
                }
                for one in metadata.operators
            ],
        }
    if verification is not None:
        damaged = [{"place": one.place, "reason": one.reason} for one in verification.damaged]
        shown["damaged"] = None if verification.unverified else damaged
        shown["unverified"] = [
            {"place": place, "reason": snapshot.reason} for place in verification.unverified
        ]
    return shown


def _summary(metadata: CheckpointMetadata | None) -> tuple[str, ...]:
    if metadata is None:
        return ("-",) * 6
    return (
        str(metadata.checkpoint_id),
        utc_text(metadata.timestamp_ms),
        _kind(metadata),
        metadata.job_name,
        str(len(metadata.operators)),
        bytes_text(metadata.size_bytes),
    )


def _condition(snapshot: InspectedSnapshot) -> Text:
    is_fine = snapshot.condition is SnapshotCondition.COMPLETE
    is_bad = snapshot.condition in (SnapshotCondition.UNTRUSTED, SnapshotCondition.DAMAGED)
    return Text(
        snapshot.condition.value, style="green" if is_fine else "red" if is_bad else "yellow"
    )


def _kind(metadata: CheckpointMetadata) -> str:
    drained = ", drained" if metadata.is_drained else ""
    return metadata.kind.name.lower().replace("_", " ") + drained


def _expired_row_count(operator: OperatorSnapshot) -> int | None:
    """Return the number of rows that had expired, or None if it is not known."""
    if operator.row_count is None:
        return None
    return sum(
        _expired_rows(chunk) for state in operator.subtasks.values() for chunk in state.chunks
    )


def _states(operator: OperatorSnapshot) -> str:
    """Return the tables and names of an operator's states with their expired share; a finished operator is marked."""
    if operator.is_finished:
        return "finished"
    expired: Counter[str] = Counter()
    for state in operator.subtasks.values():
        for chunk in state.chunks:
            title = f"{chunk.table.value} '{chunk.name}'" if chunk.name else chunk.table.value
            expired[title] += _expired_rows(chunk)
    shown = [
        f"{title} ({count:,} expired)" if count else title
        for title, count in sorted(expired.items())
    ]
    return ", ".join(shown) or "-"


def _expired_rows(chunk: StateChunk) -> int:
    """Return the number of rows that had expired and were not cleaned up yet."""
    return int(chunk.attributes.get(EXPIRED_ROWS, "0"))
