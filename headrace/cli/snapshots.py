"""Commands for checkpoints and savepoints in files, without a job or Spark: list, show, verify, dispose."""

import copy
import sys
from typing import Final

import click
from rich.console import Console

from headrace.checkpoint.errors import CheckpointStorageError, MetadataMissingError
from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.retention.cleaner import dispose_savepoint
from headrace.checkpoint.retention.inspection import (
    WHAT_TO_NAME,
    InspectedSnapshot,
    SnapshotCondition,
    find_snapshots,
    inspect_snapshot,
)
from headrace.checkpoint.storage.file_systems import absolute_uri, is_there
from headrace.checkpoint.storage.metadata_key import metadata_key
from headrace.cli.general_options import json_option, print_json
from headrace.cli.logs import EXIT_FAILED, print_error
from headrace.cli.snapshot_tables import (
    facts,
    fault_lines,
    operators_table,
    snapshot_json,
    snapshots_table,
    verification_lines,
    verified_line,
)
from headrace.core.config import Settings
from headrace.state_processor.verification import Verification, places_of, unsound_files

_LIST_HELP: Final = """\
List the checkpoints and savepoints at PATH, the newest last: a folder of snapshots, of a job, or of all jobs.

Snapshots without a known time, which are incomplete or cannot be read, come last.

\b
Try it:
  headrace {group} list /data/{group}s
  headrace {group} list s3://bucket/{group}s/1a2b3c4d5e6f...
"""
_SHOW_HELP: Final = """\
Show one checkpoint or savepoint: PATH is its folder, or its `_metadata`.

\b
Try it:
  headrace {group} show {snapshot}
  headrace {group} show --verify {snapshot}
"""
_VERIFY_HELP: Final = """\
Check that the checkpoint or savepoint at PATH (its folder, or its `_metadata`) is complete and unchanged.

The metadata must be sealed with the key, each file must have its length and digest, and its content a schema. If not,
the first line of the error names the file, and the exit code is 1.

\b
Try it:
  headrace {group} verify {snapshot}
  headrace {group} verify {snapshot} && headrace run -s {snapshot} job.py
"""
_EXAMPLE_SNAPSHOTS: Final = {
    "checkpoint": "/data/checkpoints/1a2b.../chk-7",
    "savepoint": "/data/savepoints/savepoint-1a2b3c-4d5e6f708192",
}
"""Snapshots in the examples of the help texts, by the group of the command."""
_DISPOSE_HELP: Final = """\
Delete the savepoint at PATH, with all its files.

\b
Try it:
  headrace savepoint dispose /data/savepoints/savepoint-1a2b3c-4d5e6f708192
"""

_key_file = click.option(
    "--key-file", metavar="PATH", help=f"File with the key of the metadata ({KEY_FILE.key})."
)


class _SnapshotCommand(click.Command):
    """A command of the groups `checkpoint` and `savepoint`, whose help text has examples with the group's name."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        group = _group_of(ctx)
        shown = copy.copy(self)
        shown.help = (self.help or "").format(group=group, snapshot=_EXAMPLE_SNAPSHOTS[group])
        click.Command.format_help_text(shown, ctx, formatter)


def _group_of(ctx: click.Context | None) -> str:
    name = ctx.parent.info_name if ctx is not None and ctx.parent is not None else None
    return name if name in _EXAMPLE_SNAPSHOTS else "checkpoint"


@click.command(name="list", cls=_SnapshotCommand, help=_LIST_HELP)
@click.argument("path")
@_key_file
@json_option
def list_snapshots(path: str, key_file: str | None, is_json: bool) -> int:
    """List snapshots; the exit code is 1 if there is no such folder."""
    found = (_inspected(folder, key_file) for folder in find_snapshots(path))
    snapshots = sorted(found, key=_time_of)
    if not snapshots and not is_there(absolute_uri(path)):
        raise CheckpointStorageError("look into", path, "there is no such folder", WHAT_TO_NAME)
    if is_json:
        print_json([snapshot_json(one) for one in snapshots])
    elif snapshots:
        _console().print(snapshots_table(snapshots))
    else:
        click.echo(f"there is no checkpoint or savepoint at {path}")
    return 0


@click.command(cls=_SnapshotCommand, help=_SHOW_HELP)
@click.argument("path")
@click.option(
    "--verify", is_flag=True, help="Also read every file, and check that it is unchanged."
)
@_key_file
@json_option
def show(path: str, verify: bool, key_file: str | None, is_json: bool) -> int:
    """Show one snapshot; the exit code is 1 if it could not be restored."""
    snapshot = _only_one(path, key_file)
    verification = _verified(snapshot) if verify else None
    if is_json:
        print_json(snapshot_json(snapshot, verification))
    else:
        _print_snapshot(snapshot)
        if verification is not None:
            click.echo("\n".join(["", *verification_lines(verification)]))
    is_fine = verification.is_sound if verification is not None else _is_complete(snapshot)
    return 0 if is_fine else EXIT_FAILED


@click.command(cls=_SnapshotCommand, help=_VERIFY_HELP)
@click.argument("path")
@_key_file
@json_option
def verify(path: str, key_file: str | None, is_json: bool) -> int:
    """Verify one snapshot; the exit code is 1 if it could not be restored."""
    snapshot = _only_one(path, key_file)
    verification = _verified(snapshot)
    if is_json:
        print_json(snapshot_json(snapshot, verification))
    elif verification.is_sound:
        click.echo(verified_line(snapshot))
    else:
        print_error(fault_lines(snapshot, verification.damaged))
    return 0 if verification.is_sound else EXIT_FAILED


def _time_of(snapshot: InspectedSnapshot) -> tuple[bool, int]:
    metadata = snapshot.metadata
    return metadata is None, 0 if metadata is None else metadata.timestamp_ms


def _only_one(path: str, key_file: str | None) -> InspectedSnapshot:
    """Return the one snapshot at a path. MetadataMissingError; click's UsageError if there are several."""
    found = find_snapshots(path)
    if not found:
        raise MetadataMissingError(path)
    if len(found) != 1:
        ctx = click.get_current_context(silent=True)
        raise click.UsageError(
            f"{path} is not a snapshot; 'headrace {_group_of(ctx)} list {path}' shows the {len(found)} in it",
            ctx,
        )
    return _inspected(found[0], key_file)


def _verified(snapshot: InspectedSnapshot) -> Verification:
    metadata = snapshot.metadata
    if metadata is None:
        # Nobody knows what belongs to it.
        return Verification(unverified=(snapshot.uri,))
    if not _is_complete(snapshot):
        # Untrusted metadata may name any file, so none of its files is read.
        return Verification(unverified=tuple(places_of(metadata)) or (snapshot.uri,))
    return Verification(damaged=tuple(unsound_files(metadata)))


def _is_complete(snapshot: InspectedSnapshot) -> bool:
    return snapshot.condition is SnapshotCondition.COMPLETE


def _inspected(folder: str, key_file: str | None) -> InspectedSnapshot:
    return inspect_snapshot(folder, metadata_key(key_settings(key_file)))


def key_settings(key_file: str | None) -> Settings:
    """Return the settings for which the option `--key-file` stands."""
    return Settings({} if key_file is None else {KEY_FILE.key: key_file})


def _print_snapshot(snapshot: InspectedSnapshot) -> None:
    if snapshot.reason:
        click.secho(snapshot.reason, fg="red")
    if snapshot.metadata is None:
        return
    for name, value in facts(snapshot, snapshot.metadata):
        click.echo(f"{name:16}{value}")
    click.echo()
    _console().print(operators_table(snapshot.metadata))


def _console() -> Console:
    # Without a terminal, lines are not wrapped.
    return Console() if sys.stdout.isatty() else Console(width=200, highlight=False)


@click.command(help=_DISPOSE_HELP)
@click.argument("path")
@_key_file
@json_option
def dispose(path: str, key_file: str | None, is_json: bool) -> int:
    """Delete a savepoint; anything else is refused."""
    disposed = dispose_savepoint(path, key_settings(key_file))
    metadata = disposed.metadata
    said = f"savepoint {metadata.checkpoint_id} of job '{metadata.job_name}' is deleted"
    click.echo(said, err=is_json)
    if is_json:
        print_json({"location": path, "job-name": metadata.job_name})
    return 0
