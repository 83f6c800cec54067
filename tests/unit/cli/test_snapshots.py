"""`headrace checkpoint` and `headrace savepoint`, on snapshots in real folders."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, KEY_FILE, SAVEPOINT_DIRECTORY
from headrace.checkpoint.storage.checkpoint_storage import open_checkpoint_storage
from headrace.checkpoint.storage.file_systems import child_uri, put_if_absent
from headrace.checkpoint.storage.lineages import LineageInMemory
from headrace.checkpoint.storage.metadata_format import abandonment
from headrace.checkpoint.storage.subtask_storage import SubtaskStorage
from headrace.cli import snapshots as snapshot_commands
from headrace.cli.main import cli
from headrace.cli.program_options import recovery_settings
from headrace.cli.snapshots import key_settings
from headrace.core.barriers import CheckpointOptions, SnapshotKind
from headrace.core.config import Settings, bytes_text
from headrace.state.keyed_chunks import parquet_of
from headrace.state_processor.savepoint_editor import SavepointEditor
from headrace.state_processor.verification import DamagedFile, unsound_files
from tests.unit.checkpoint.snapshots import JOB, LINEAGE, metadata_of


class Snapshots:
    """Checkpoints and savepoints of one job below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = str(folder / "key")
        self._settings = Settings(
            {
                CHECKPOINT_DIRECTORY.key: str(folder),
                SAVEPOINT_DIRECTORY.key: str(folder),
                KEY_FILE.key: self.key,
            }
        )
        self._storage = open_checkpoint_storage(
            self._settings, JOB, LineageInMemory(LINEAGE), random.Random(1)
        )

    def take(
        self,
        number: int,
        kind: SnapshotKind = SnapshotKind.CHECKPOINT,
        content: bytes | memoryview = bytes(30_000),
        table: StateTable = StateTable.KEYED,
        **attributes: str,
    ) -> str:
        options = self._storage.locate(number, CheckpointOptions(kind=kind))
        file = SubtaskStorage(options, "state", self._settings).write("counts", content)
        metadata = metadata_of(number, file, kind=kind, table=table, **attributes)
        return self._storage.publish(metadata, options).uri

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(
            cli, [*arguments, "--key-file", self.key], standalone_mode=False, catch_exceptions=True
        )


def three_rows() -> memoryview:
    """A table that is too large to lie within the metadata."""
    return parquet_of(
        [pa.table({"key": [1, 2, 3], "value": [os.urandom(10_000) for _ in range(3)]})]
    )


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path)


@pytest.mark.parametrize("command", ["list", "show", "verify"])
@pytest.mark.parametrize(
    ("group", "other"), [("checkpoint", "savepoint"), ("savepoint", "checkpoint")]
)
def test_the_examples_of_a_help_text_are_of_its_own_group(
    group: str, other: str, command: str
) -> None:
    shown = CliRunner().invoke(cli, [group, command, "--help"], standalone_mode=False).output
    assert f"headrace {group} {command}" in shown and f"headrace {other}" not in shown


def test_a_list_shows_checkpoints_and_savepoints_by_time(snapshots: Snapshots) -> None:
    for number in (11, 9):
        snapshots.take(number)
    snapshots.take(10, SnapshotKind.SAVEPOINT_TERMINATE)
    lines = snapshots.run("checkpoint", "list", str(snapshots.folder)).output.splitlines()
    assert lines[0].split() == [
        "id", "time", "kind", "job", "operators", "state", "condition", "folder",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:]] == ["9", "10", "11"]
    assert "savepoint terminate, drained" in lines[2]
    assert "1970-01-01 00:00:09  checkpoint" in lines[1]
    assert "29.3 KB  complete" in lines[1] and lines[1].rstrip().endswith("chk-9")


def test_an_edited_savepoint_says_of_what_it_was_made_and_why(snapshots: Snapshots) -> None:
    parent = snapshots.take(7)
    editor = SavepointEditor.open(parent, key_settings(snapshots.key))
    editor.rename_operator("counter", "tally")
    editor.write(str(snapshots.folder / "edited"), reason="a better name", author="Ada")
    lines = snapshots.run(
        "checkpoint", "show", str(snapshots.folder / "edited")
    ).output.splitlines()
    shown = [" ".join(line.split()) for line in lines]
    assert f"edited from {parent}" in shown
    assert any(line.startswith("edited by Ada, ") and "a better name" in line for line in shown)
    assert "'count' (uid 'tally'): uid was 'counter', 3 -> 3 rows" in shown
    of_parent = snapshots.run("checkpoint", "show", parent).output.splitlines()
    assert not any(line.startswith("edited") for line in of_parent)


def test_a_list_says_what_is_no_checkpoint_yet_or_never_will_be(snapshots: Snapshots) -> None:
    job = snapshots.folder / JOB.hex()
    (job / "chk-3").mkdir(parents=True)
    put_if_absent(child_uri(str(job), "chk-4", "_metadata"), abandonment(2), "t")
    output = snapshots.run("checkpoint", "list", str(job)).output
    assert "unpublished  chk-3" in output and "given up     chk-4" in output


def test_an_empty_folder_says_so(snapshots: Snapshots) -> None:
    output = snapshots.run("checkpoint", "list", str(snapshots.folder)).output
    assert "there is no checkpoint or savepoint" in output


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_list_of_a_folder_that_is_not_there_is_a_failure(
    snapshots: Snapshots, options: tuple[str, ...]
) -> None:
    missing = str(snapshots.folder / "nope")
    result = snapshots.run("checkpoint", "list", missing, *options)
    assert isinstance(result.exception, CheckpointStorageError)
    assert f"cannot look into {missing}: there is no such folder; name the" in str(result.exception)
    empty = snapshots.folder / "empty"
    empty.mkdir()
    listed = snapshots.run("checkpoint", "list", str(empty), *options)
    assert listed.exit_code == 0
    assert listed.output in ("[]\n", f"there is no checkpoint or savepoint at {empty}\n")


def test_a_list_is_there_for_programs_too(snapshots: Snapshots) -> None:
    uri = snapshots.take(7)
    (shown,) = json.loads(snapshots.run("checkpoint", "list", str(uri), "--json").output)
    assert (shown["location"], shown["checkpoint-id"], shown["condition"]) == (uri, 7, "complete")
    assert (shown["job-name"], len(shown["job-id"])) == ("words", 32)
    assert shown["operators"][0]["uid"] == "counter"


def test_one_snapshot_is_shown_operator_by_operator(snapshots: Snapshots) -> None:
    uri = snapshots.take(7)
    result = snapshots.run("checkpoint", "show", uri)
    assert result.return_value == 0
    assert f"lineage         {LINEAGE}, epoch 1" in result.output
    assert result.output.splitlines()[-1].split() == [
        "count", "counter", "1", "128", "29.3", "KB", "3", "keyed", "'counts'",
    ]  # fmt: skip


def test_how_many_rows_rocksdb_s_own_files_have_is_not_known(snapshots: Snapshots) -> None:
    uri = snapshots.take(7, SnapshotKind.NATIVE_SAVEPOINT, table=StateTable.NATIVE)
    shown = snapshots.run("savepoint", "show", uri).output.splitlines()[-1].split()
    assert shown[5:] == ["KB", "-", "native", "'counts'"]
    (operator,) = json.loads(snapshots.run("savepoint", "show", uri, "--json").output)["operators"]
    assert operator["row-count"] is operator["expired-row-count"] is None


def test_what_has_expired_and_is_still_kept_is_shown_state_by_state(snapshots: Snapshots) -> None:
    uri = snapshots.take(7, expired_rows="2")
    assert "keyed 'counts' (2 expired)" in snapshots.run("checkpoint", "show", uri).output
    shown = json.loads(snapshots.run("checkpoint", "show", uri, "--json").output)
    assert shown["operators"][0]["expired-row-count"] == 2


def test_verifying_reads_every_file(snapshots: Snapshots) -> None:
    uri = snapshots.take(7, content=three_rows())
    assert "every file is unchanged" in snapshots.run("checkpoint", "show", "--verify", uri).output
    (file,) = Path(uri).glob("state-*")
    file.write_bytes(b"!" + file.read_bytes()[1:])
    result = snapshots.run("checkpoint", "show", "--verify", uri)
    assert result.return_value == 1
    assert "'count' (uid 'counter'), subtask 0, keyed 'counts'" in result.output
    assert "its digest is" in result.output
    shown = json.loads(snapshots.run("checkpoint", "show", "--verify", "--json", uri).output)
    assert len(shown["damaged"]) == 1


def test_verify_says_that_a_snapshot_is_whole(snapshots: Snapshots) -> None:
    uri = snapshots.take(7, content=three_rows())
    for path in (uri, f"{uri}/_metadata"):
        result = snapshots.run("checkpoint", "verify", path)
        assert result.return_value == 0
        assert result.output.startswith("checkpoint 7 of job 'words' is whole: ")
    assert json.loads(snapshots.run("checkpoint", "verify", "--json", uri).output)["damaged"] == []


def cut_off(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("spoil", [cut_off, Path.unlink], ids=["cut off", "missing"])
@pytest.mark.parametrize("pattern", ["state-*", "_metadata"])
def test_the_first_line_of_a_failed_verification_names_the_file(
    snapshots: Snapshots, pattern: str, spoil: Callable[[Path], None]
) -> None:
    (file,) = Path(snapshots.take(7, content=three_rows())).glob(pattern)
    spoil(file)
    result = snapshots.run("checkpoint", "verify", str(file.parent))
    assert (result.return_value, result.stdout) == (1, "")
    first = result.stderr.splitlines()[0]
    assert first.startswith("error: ") and str(file) in first
    assert ("/_metadata is missing" in first) == (not file.exists() and pattern == "_metadata")


@pytest.mark.parametrize("command", [("verify",), ("show", "--verify")])
def test_of_metadata_that_is_not_to_be_trusted_no_file_is_touched(
    snapshots: Snapshots,
    tmp_path: Path,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_for: list[CheckpointMetadata] = []

    def noted(metadata: CheckpointMetadata) -> Iterator[DamagedFile]:
        asked_for.append(metadata)
        return unsound_files(metadata)

    monkeypatch.setattr(snapshot_commands, "unsound_files", noted)
    uri = snapshots.take(7)  # whose state is no table
    assert "keyed 'counts'" in snapshots.run("checkpoint", *command, uri).output
    assert len(asked_for) == 1
    snapshots.key = str(tmp_path / "another")
    result = snapshots.run("checkpoint", *command, uri)
    assert result.return_value == 1
    assert "cannot be trusted" in result.output
    assert "every file is unchanged" not in result.output
    assert len(asked_for) == 1


def another_key(snapshots: Snapshots, uri: str) -> None:
    snapshots.key = str(Path(uri).parent / "another")


def without_metadata(snapshots: Snapshots, uri: str) -> None:
    (Path(uri) / "_metadata").unlink()


def with_metadata_cut_off(snapshots: Snapshots, uri: str) -> None:
    cut_off(Path(uri) / "_metadata")


COUNTS = "'count' (uid 'counter'), subtask 0, keyed 'counts'"


@pytest.mark.parametrize("command", [("verify",), ("show", "--verify")])
@pytest.mark.parametrize(
    ("spoil", "place", "reason"),
    [
        (another_key, COUNTS, "cannot be trusted"),
        (without_metadata, "", "it was never completed"),
        (with_metadata_cut_off, "", "_metadata is incomplete"),
    ],
)
def test_programs_are_told_what_could_not_be_looked_at(
    snapshots: Snapshots,
    command: tuple[str, ...],
    spoil: Callable[[Snapshots, str], None],
    place: str,
    reason: str,
) -> None:
    uri = snapshots.take(7, content=three_rows())
    whole = json.loads(snapshots.run("checkpoint", *command, "--json", uri).output)
    assert (whole["damaged"], whole["unverified"]) == ([], [])
    spoil(snapshots, uri)
    result = snapshots.run("checkpoint", *command, "--json", uri)
    assert result.return_value == 1
    shown = json.loads(result.output)
    assert shown["damaged"] is None
    (unverified,) = shown["unverified"]
    assert unverified["place"] == (place or uri)
    assert reason in unverified["reason"]
    told = snapshots.run("checkpoint", "show", "--verify", uri).output
    assert f"{place or uri}: not read" in told


def test_a_verification_of_what_is_not_to_be_trusted_is_one_line(
    snapshots: Snapshots, tmp_path: Path
) -> None:
    uri = snapshots.take(7)
    snapshots.key = str(tmp_path / "another")
    (line,) = snapshots.run("checkpoint", "verify", uri).stderr.splitlines()
    assert f"{uri}/_metadata cannot be trusted" in line
    assert line.endswith("set headrace.checkpoint.key-file to the file with that key")


def test_what_somebody_else_wrote_is_shown_and_not_trusted(
    snapshots: Snapshots, tmp_path: Path
) -> None:
    uri = snapshots.take(7)
    snapshots.key = str(tmp_path / "another")
    result = snapshots.run("checkpoint", "show", uri)
    assert result.return_value == 1
    assert "cannot be trusted" in result.output and "count" in result.output


def test_damaged_metadata_is_told(snapshots: Snapshots) -> None:
    uri = snapshots.take(7)
    metadata = Path(uri) / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-20])
    assert "damaged" in snapshots.run("checkpoint", "list", uri).output
    result = snapshots.run("checkpoint", "show", "--verify", uri)
    assert (result.return_value, "is incomplete" in result.output) == (1, True)


def test_a_folder_of_several_is_not_shown_as_one(snapshots: Snapshots) -> None:
    for number in (1, 2):
        snapshots.take(number)
    error = snapshots.run("checkpoint", "show", str(snapshots.folder)).exception
    assert "shows the 2 in it" in str(error)
    missing = snapshots.run("checkpoint", "show", str(snapshots.folder / "nowhere")).exception
    assert "no completed checkpoint or savepoint" in str(missing)


def test_a_savepoint_is_disposed_of(snapshots: Snapshots) -> None:
    uri = snapshots.take(7, SnapshotKind.SAVEPOINT)
    result = snapshots.run("savepoint", "dispose", uri)
    assert "savepoint 7 of job 'words' is deleted" in result.output
    assert not Path(uri).exists()


def test_a_checkpoint_is_not_disposed_of(snapshots: Snapshots) -> None:
    uri = snapshots.take(7)
    assert "only savepoints" in str(snapshots.run("savepoint", "dispose", uri).exception)
    assert Path(uri).exists()


def test_a_program_starts_from_a_snapshot_by_options_of_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert recovery_settings("kept/savepoint-1", True, "claim") == {
        "execution.state-recovery.path": str(tmp_path / "kept" / "savepoint-1"),
        "execution.state-recovery.ignore-unclaimed-state": "true",
        "execution.state-recovery.claim-mode": "CLAIM",
    }
    assert recovery_settings(None, False, None) == {}
    assert recovery_settings("s3://b/chk-1/", False, "no-claim") == {
        "execution.state-recovery.path": "s3://b/chk-1",
        "execution.state-recovery.claim-mode": "NO_CLAIM",
    }


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (5 << 40, "5.0 TB")]
)
def test_sizes_have_the_unit_that_people_would_choose(size: int, text: str) -> None:
    assert bytes_text(size) == text
