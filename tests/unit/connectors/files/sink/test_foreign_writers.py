"""File sinks in a folder that others write to: what they put there moves, deletes and publishes nothing elsewhere."""

import os
import stat
from pathlib import Path

import pytest

from headrace.checkpoint.storage.metadata_key import MetadataKey, seal
from headrace.connectors.files.paths import PathOutsideError
from headrace.connectors.files.sink.buckets import BucketAssigner
from headrace.connectors.files.sink.committables import (
    FileSinkPayload,
    PendingFile,
    decode_file_payload,
    encode_committable,
)
from headrace.connectors.files.sink.file_commit import FileCommitter
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.connectors.files.sink.note_file import NoteDamagedError, digest_of_scope
from headrace.core.types.type_info import Types
from headrace.functions.serialization import Encoder
from tests.unit.connectors.sink_world import KEY, SinkWorld, key

ABOUT = "what was committed in lineage/sink"


def world_of(path: Path) -> SinkWorld:
    builder = FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
    sink = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    _, payload = sink.committer()
    return SinkWorld(
        sink,
        Types.STRING(),
        lambda: FileCommitter(decode_file_payload(payload), key),
        lambda s, n: f"{s}:{n}",
    )


@pytest.mark.parametrize("suffix", ["", ".made"])
def test_a_note_that_is_a_link_leads_nowhere(tmp_path: Path, suffix: str) -> None:
    target, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    target.mkdir()
    note = target / f".headrace-commits-{digest_of_scope('lineage/sink')}{suffix}"
    note.symlink_to(elsewhere)
    world = world_of(target)
    world.write(0, 1)
    world.publish()
    with pytest.raises((NoteDamagedError, PathOutsideError), match="is a link"):
        world.commit()
    assert not elsewhere.exists()


def test_a_note_that_somebody_else_wrote_has_nothing_deleted(tmp_path: Path) -> None:
    target, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("mine")
    world = world_of(target)
    world.write(0, 1)
    world.checkpoint()
    (note,) = [one for one in target.glob(".headrace-commits-*") if one.suffix != ".made"]
    forged = b'{"scope":"lineage/sink","last_id":1,"garbage":["../precious"]}'
    world.write(0, 1)
    world.publish()
    for content in (forged, seal(forged, ABOUT, MetadataKey(bytes(32)))):
        note.write_bytes(content)
        with pytest.raises(NoteDamagedError):
            world.commit()
    # Not even a note of our own leads out of its folder.
    note.write_bytes(seal(forged, ABOUT, KEY))
    with pytest.raises(PathOutsideError):
        world.commit()
    assert precious.read_text() == "mine"


@pytest.mark.parametrize("name", ["final", "hidden"])
def test_a_prepared_file_is_neither_taken_from_nor_published_elsewhere(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("mine")
    if name == "final":
        pending = PendingFile(".headrace-x", "precious", "../published", 4)
    else:
        pending = PendingFile("..", "precious", "published", 4)
    payload = FileSinkPayload(str(tmp_path / "out"))
    with pytest.raises(PathOutsideError):
        FileCommitter(payload, key).commit("lineage/sink/1", 1, [encode_committable(pending)])
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "published").exists()


def test_nothing_is_published_or_swept_behind_links(tmp_path: Path) -> None:
    target, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    world = world_of(target)
    world.attempt = 1
    world.start()
    world.write(0, 1)
    (elsewhere / "x.pending").touch()
    own = next(target.glob(".headrace-*-0-1-*"))
    older = own.name.rsplit("-", 2)[0] + "-0-" + own.name.rsplit("-", 1)[1]
    (target / older).symlink_to(elsewhere)
    world.checkpoint()
    assert [one.name for one in elsewhere.iterdir()] == ["x.pending"]
    # The staging folder itself, exchanged for a link before the commit.
    world.write(0, 1)
    world.publish()
    own = next(one for one in target.glob(".headrace-*-0-1-*") if any(one.iterdir()))
    for file in own.iterdir():
        file.rename(elsewhere / file.name)
    own.rmdir()
    own.symlink_to(elsewhere)
    with pytest.raises(PathOutsideError, match="is a link"):
        world.commit()


def test_output_that_waits_is_for_its_user_alone_and_what_is_published_as_the_umask_says(
    tmp_path: Path,
) -> None:
    before = os.umask(0o022)
    try:
        world = world_of(tmp_path / "out")
        world.write(0, 1)
        world.publish()
        (staging,) = (tmp_path / "out").iterdir()
        assert stat.S_IMODE(staging.stat().st_mode) == 0o700
        world.commit()
    finally:
        os.umask(before)
    (result,) = (one for one in (tmp_path / "out").iterdir() if one.name.startswith("part-"))
    assert stat.S_IMODE(result.stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o755
