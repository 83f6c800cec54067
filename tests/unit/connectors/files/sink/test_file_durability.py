"""Order of writes with which files and notes survive a loss of power: bytes before names, names before notes."""

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.connectors.files.sink.buckets import BucketAssigner
from headrace.connectors.files.sink.committables import decode_file_payload
from headrace.connectors.files.sink.compaction import FileCompactor, FileCompactStrategy
from headrace.connectors.files.sink.file_commit import FileCommitter
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.core.config import Settings
from headrace.core.types.type_info import Types
from headrace.functions.serialization import Encoder
from tests.unit.connectors.sink_world import WITH_CHECKPOINTS, SinkWorld, key


class OneBucket(BucketAssigner):
    def bucket_of(self, now_ms: int) -> str:
        return "day/hour"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names, below the folder, of what was synchronised, as they were at that moment."""
    names: list[str] = []

    def fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        found = [tmp_path, *tmp_path.rglob("*")]
        (path,) = [one for one in found if os.path.samestat(one.stat(), status)]
        names.append(str(path.relative_to(tmp_path)))

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def world_of(path: Path, settings: Settings = WITH_CHECKPOINTS, *, compacts: bool = False) -> Any:
    builder = FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
    builder = builder.with_bucket_assigner(OneBucket())
    if compacts:
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build()
        builder = builder.enable_compact(strategy, FileCompactor.concat_file_compactor())
    sink = builder.build()
    _, payload = sink.committer()
    return SinkWorld(
        sink,
        Types.STRING(),
        lambda: FileCommitter(decode_file_payload(payload), key),
        lambda subtask, number: f"{subtask}:{number}",
        parallelism=1,
        settings=settings,
    )


def test_a_prepared_file_and_its_name_survive_before_the_checkpoint_says_so(
    tmp_path: Path, synced: list[str]
) -> None:
    world = world_of(tmp_path)
    world.write(0, 3)
    world.publish()
    in_progress, folder, base = synced
    assert in_progress.startswith(f"{folder}/")
    assert base == "."


def test_names_that_a_commit_gives_survive_before_the_note_of_it(
    tmp_path: Path, synced: list[str]
) -> None:
    world = world_of(tmp_path)
    world.write(0, 3)
    world.publish()
    synced.clear()
    world.commit()
    *names, note, folder_of_note, folder_of_trace = synced
    assert names == ["day/hour", "day", "."]
    assert note.startswith(".") and note.endswith(".new")
    assert folder_of_note == folder_of_trace == "."


def test_a_merged_file_survives_before_those_it_was_made_of_are_deleted(
    tmp_path: Path, synced: list[str]
) -> None:
    world = world_of(tmp_path, compacts=True)
    world.write(0, 3)
    world.checkpoint()
    world.write(0, 3)
    world.publish()
    synced.clear()
    world.commit()
    merged, *names, note, _ = synced
    assert "merging" in merged
    assert names == ["day/hour", "day", "."]
    assert note.endswith(".new")


def test_without_checkpoints_names_survive_too(tmp_path: Path, synced: list[str]) -> None:
    world = world_of(tmp_path, Settings({}))
    world.write(0, 3)
    world.writers[0].flush(end_of_input=True)
    assert synced[-3:] == ["day/hour", "day", "."]
