"""Archives of jobs are unpacked inside of their folder, or refused."""

import errno
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from headrace.cluster.blob.archive_files import unpack
from headrace.core.randomness import SeededRandom
from headrace.gateways.errors import BlobStorageError, UnfitArchiveError

SIZE_MAX = 1_000


def zipped(
    path: Path, files: dict[str, bytes], mode: int = 0o644, method: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            packed.writestr(entry, content, method)
    return path


def tarred(path: Path, *entries: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for entry in entries:
            packed.addfile(entry, io.BytesIO(b"x" * entry.size))
    return path


def member(
    name: str, size: int = 1, kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname, entry.mode = size, kind, target, 0o755
    return entry


def test_files_and_folders_are_there_and_programs_stay_executable(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"bin/run": b"#!", "empty/": b""}, 0o755)
    unpack(archive, tmp_path / "out", SIZE_MAX)
    assert (tmp_path / "out" / "bin" / "run").read_bytes() == b"#!"
    assert (tmp_path / "out" / "bin" / "run").stat().st_mode & 0o100
    assert (tmp_path / "out" / "empty").is_dir()
    unpack(tarred(tmp_path / "a.tgz", member("bin/run")), tmp_path / "tar", SIZE_MAX)
    assert (tmp_path / "tar" / "bin" / "run").stat().st_mode & 0o100


@pytest.mark.parametrize("name", ["../a", "/a", "b/../../a", "b\\..\\a"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    for archive in (
        zipped(tmp_path / "a.zip", {name: b"x"}),
        tarred(tmp_path / "a.tar.gz", member(name)),
    ):
        with pytest.raises(UnfitArchiveError, match="leads out of its folder"):
            unpack(archive, tmp_path / archive.suffix, SIZE_MAX)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = tarred(tmp_path / "a.tar.gz", member("a", 0, kind, "/etc/passwd"))
    with pytest.raises(UnfitArchiveError, match="is a link or a device"):
        unpack(archive, tmp_path / "out", SIZE_MAX)


def test_a_link_in_a_zip_file_is_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a": b"/etc/passwd"}, 0o120777)
    with pytest.raises(UnfitArchiveError, match="is a link"):
        unpack(archive, tmp_path / "out", SIZE_MAX)


def test_more_than_the_bound_is_refused_before_it_is_written(tmp_path: Path) -> None:
    big = {"a": b"x" * 600, "b": b"x" * 600}
    for archive in (
        zipped(tmp_path / "a.zip", big),
        tarred(tmp_path / "a.tar.gz", *(member(name, len(text)) for name, text in big.items())),
    ):
        out = tmp_path / archive.suffix
        with pytest.raises(UnfitArchiveError, match=r"headrace\.artifacts\.size-max"):
            unpack(archive, out, SIZE_MAX)
        assert list(out.iterdir()) == []


def test_what_is_no_archive_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(
        UnfitArchiveError, match=r"'a\.zip' of the job cannot be unpacked: it is damaged"
    ):
        unpack(tmp_path / "a.zip", tmp_path / "out", SIZE_MAX)


def test_damage_at_any_place_of_an_archive_is_an_error_that_no_restart_mends(
    tmp_path: Path,
) -> None:
    chance = SeededRandom(7)
    text = bytes(chance.getrandbits(8) for _ in range(400))
    whole = zipped(tmp_path / "a.zip", {"a": text}, method=zipfile.ZIP_DEFLATED)
    packed = tmp_path / "a.tar.gz"
    with tarfile.open(packed, "w:gz") as made:
        entry = tarfile.TarInfo("a")
        entry.size = len(text)
        made.addfile(entry, io.BytesIO(text))
    found = 0
    for archive in (whole, packed):
        content = archive.read_bytes()
        for place in range(0, len(content), 7):
            cut = archive.with_name(f"cut-{place}-{archive.name}")
            cut.write_bytes(content[:place])
            turned = archive.with_name(f"turned-{place}-{archive.name}")
            turned.write_bytes(
                content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :]
            )
            for damaged in (cut, turned):
                out = tmp_path / f"out-{damaged.name}"
                try:
                    unpack(damaged, out, SIZE_MAX)
                except UnfitArchiveError as error:
                    assert not error.recoverable
                    found += 1
                else:
                    # What was hit matters to nobody, such as a time; contents are never wrong.
                    assert [file.read_bytes() for file in out.rglob("*") if file.is_file()] in (
                        [text],
                        [],
                    )
    assert found > 100


def test_a_disk_without_room_is_an_error_that_a_restart_may_mend(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a": b"x"})
    with pytest.raises(BlobStorageError, match=r"'blob\.storage\.directory'") as failed:
        full_disk(archive, tmp_path)
    assert failed.value.recoverable


def full_disk(archive: Path, folder: Path) -> None:
    """Unpack onto a disk that has no room."""
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr("shutil.copyfileobj", refuse)
        unpack(archive, folder / "full", SIZE_MAX)
