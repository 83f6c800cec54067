"""Archives of jobs are unpacked inside of their folder, or refused."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from headrace.cluster.blob.archive_files import unpack
from headrace.gateways.errors import BlobStorageError

SIZE_MAX = 1_000


def zipped(path: Path, files: dict[str, bytes], mode: int = 0o644) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            packed.writestr(entry, content)
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
        with pytest.raises(BlobStorageError, match="leads out of its folder"):
            unpack(archive, tmp_path / archive.suffix, SIZE_MAX)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = tarred(tmp_path / "a.tar.gz", member("a", 0, kind, "/etc/passwd"))
    with pytest.raises(BlobStorageError, match="is a link or a device"):
        unpack(archive, tmp_path / "out", SIZE_MAX)


def test_a_link_in_a_zip_file_is_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a": b"/etc/passwd"}, 0o120777)
    with pytest.raises(BlobStorageError, match="is a link"):
        unpack(archive, tmp_path / "out", SIZE_MAX)


def test_more_than_the_bound_is_refused_before_it_is_written(tmp_path: Path) -> None:
    big = {"a": b"x" * 600, "b": b"x" * 600}
    for archive in (
        zipped(tmp_path / "a.zip", big),
        tarred(tmp_path / "a.tar.gz", *(member(name, len(text)) for name, text in big.items())),
    ):
        out = tmp_path / archive.suffix
        with pytest.raises(BlobStorageError, match=r"headrace\.artifacts\.size-max"):
            unpack(archive, out, SIZE_MAX)
        assert list(out.iterdir()) == []


def test_what_is_no_archive_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"no archive")
    with pytest.raises(BlobStorageError, match=r"a\.zip cannot be unpacked"):
        unpack(tmp_path / "a.zip", tmp_path / "out", SIZE_MAX)
