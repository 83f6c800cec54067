"""The catalog of archives: what is listed, forgotten and deleted, and what is not."""

import logging
import os
import tracemalloc
from pathlib import Path

import pytest

from headrace.core.clock import ManualClock
from headrace.rest.handler_errors import NotFoundError
from headrace.rest.history import archive_storage
from headrace.rest.history.archive_catalog import RetentionRules
from headrace.rest.history.archive_file import pack_archive
from tests.unit.rest.history.archived_jobs import (
    catalog_of,
    job_id_of,
    listed,
    overview_of,
    small_archive,
    write_archives,
)
from tests.unit.rest.sample_cluster import START_MS


def test_only_whole_archives_are_listed_and_others_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1, 2])
    whole = small_archive(job_id_of(3))
    (folder / job_id_of(3)).write_bytes(whole[: len(whole) // 2])
    (folder / job_id_of(4)).write_bytes(b"")
    (folder / f".{job_id_of(5)}.token").write_bytes(whole)
    (folder / "notes.txt").write_text("not an archive")
    catalog = catalog_of(folder)
    with caplog.at_level(logging.WARNING):
        catalog.refresh()
        catalog.refresh()
    assert listed(catalog) == {1, 2}
    told = [record.getMessage() for record in caplog.records]
    (line,) = told
    assert line.startswith(f"2 files in {folder} are left out")
    assert "not a complete archive" in line
    assert (folder / job_id_of(3)).exists()


def test_an_archive_that_becomes_whole_is_listed(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()
    (folder / job_id_of(3)).write_bytes(b"half")
    catalog = catalog_of(folder)
    catalog.refresh()
    (folder / job_id_of(3)).write_bytes(small_archive(job_id_of(3)))
    catalog.refresh()
    assert listed(catalog) == {3}


@pytest.mark.parametrize(
    "overview",
    [
        b"{}",
        b'"text"',
        overview_of(job_id_of(8)),
        overview_of(job_id_of(1), name="x" * 20_000),
        b'{"jid":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=["empty", "text", "of another job", "too long", "too deep"],
)
def test_an_overview_of_a_stranger_is_refused(tmp_path: Path, overview: bytes) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [2])
    answers = [(f"/jobs/{job_id_of(1)}", b"{}")]
    content = pack_archive(job_id_of(1), overview, answers, is_compressed=False)
    (folder / job_id_of(1)).write_bytes(content)
    catalog = catalog_of(folder)
    catalog.refresh()
    assert listed(catalog) == {2}


def test_links_pipes_and_folders_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1])
    write_archives(tmp_path / "elsewhere", [2])
    (folder / job_id_of(2)).symlink_to(tmp_path / "elsewhere" / job_id_of(2))
    os.mkfifo(folder / job_id_of(3))
    (folder / job_id_of(4)).mkdir()
    catalog = catalog_of(folder, rules=RetentionRules(count_max=1))
    catalog.refresh()
    assert listed(catalog) == {1}
    assert (tmp_path / "elsewhere" / job_id_of(2)).exists()
    assert len(list(folder.iterdir())) == 4


def test_an_archive_that_is_replaced_by_a_link_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1])
    catalog = catalog_of(folder)
    catalog.refresh()
    (folder / job_id_of(1)).rename(tmp_path / "moved")
    (folder / job_id_of(1)).symlink_to(tmp_path / "moved")
    with pytest.raises(Exception, match="cannot be read"):
        catalog.answer(job_id_of(1), f"/jobs/{job_id_of(1)}")


def test_too_many_archives_go_the_oldest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, range(1, 8))
    deleted: list[str] = []
    delete = archive_storage.delete_archive

    def recorded(archive: archive_storage.StoredArchive) -> None:
        deleted.append(archive.job)
        delete(archive)

    monkeypatch.setattr("headrace.rest.history.archive_catalog.delete_archive", recorded)
    catalog = catalog_of(folder, rules=RetentionRules(count_max=3))
    catalog.refresh()
    assert deleted == [job_id_of(number) for number in (1, 2, 3, 4)]
    assert listed(catalog) == {5, 6, 7}
    assert {int(file.name, 16) for file in folder.iterdir()} == {5, 6, 7}


def test_archives_go_when_they_are_too_old(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1, 2, 3])
    clock = ManualClock(START_MS + 3_000)
    catalog = catalog_of(folder, rules=RetentionRules(age_max_ms=1_500), clock=clock)
    catalog.refresh()
    assert listed(catalog) == {2, 3}
    clock.advance_ms(1_000)
    catalog.refresh()
    assert listed(catalog) == {3}


def test_retention_leaves_what_is_no_archive(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1, 2])
    damaged = folder / job_id_of(9)
    damaged.write_bytes(b"something of somebody's")
    os.utime(damaged, (1, 1))
    rules = RetentionRules(count_max=1, age_max_ms=3_600_000)
    catalog = catalog_of(folder, rules=rules)
    catalog.refresh()
    assert sorted(file.name for file in folder.iterdir()) == [job_id_of(2), job_id_of(9)]


def test_a_folder_that_cannot_be_reached_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1, 2])
    rules = RetentionRules(count_max=1, forgets_gone=True)
    catalog = catalog_of(folder)
    catalog.refresh()
    folder.rename(tmp_path / "unmounted")
    strict = catalog_of(folder, rules=rules)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            catalog.refresh()
            strict.refresh()
    assert listed(catalog) == {1, 2}
    assert len(caplog.records) == 2
    (tmp_path / "unmounted").rename(folder)
    catalog.refresh()
    assert catalog.answer(job_id_of(1), f"/jobs/{job_id_of(1)}")


@pytest.mark.parametrize("forgets", [True, False])
def test_a_job_whose_archive_is_gone_leaves_the_list_only_on_request(
    tmp_path: Path, forgets: bool
) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1, 2])
    catalog = catalog_of(folder, rules=RetentionRules(forgets_gone=forgets))
    catalog.refresh()
    (folder / job_id_of(1)).unlink()
    catalog.refresh()
    assert listed(catalog) == ({2} if forgets else {1, 2})
    with pytest.raises(NotFoundError):
        catalog.answer(job_id_of(1), f"/jobs/{job_id_of(1)}")
    write_archives(folder, [1])
    catalog.refresh()
    assert catalog.answer(job_id_of(1), f"/jobs/{job_id_of(1)}")


def test_of_two_archives_of_a_job_that_of_the_first_folder_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    write_archives(first, [1])
    write_archives(second, [1, 2])
    catalog = catalog_of(first, second)
    catalog.refresh()
    catalog.refresh()
    assert listed(catalog) == {1, 2}
    (second / job_id_of(1)).unlink()
    catalog.refresh()
    assert catalog.answer(job_id_of(1), f"/jobs/{job_id_of(1)}")


def test_a_restart_reads_no_archive_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, range(1, 50))
    before = catalog_of(folder)
    before.refresh()
    before.keep()
    write_archives(folder, [77])
    read: list[str] = []
    opened = archive_storage.open_archive

    def recorded(archive: archive_storage.StoredArchive) -> object:
        read.append(archive.job)
        return opened(archive)

    monkeypatch.setattr("headrace.rest.history.archive_catalog.open_archive", recorded)
    after = catalog_of(folder)
    after.refresh()
    assert read == [job_id_of(77)]
    assert listed(after) == {*range(1, 50), 77}


def test_an_archive_that_was_changed_since_is_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    write_archives(folder, [1])
    before = catalog_of(folder)
    before.refresh()
    before.keep()
    (folder / job_id_of(1)).write_bytes(b"changed")
    after = catalog_of(folder)
    after.refresh()
    assert listed(after) == set()


@pytest.mark.parametrize("content", [b"", b"\xc1", b"x" * 1000])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, content: bytes) -> None:
    folder, work = tmp_path / "archives", tmp_path / "work"
    write_archives(folder, [1])
    before = catalog_of(folder)
    before.refresh()
    before.keep()
    (file,) = work.iterdir()
    file.write_bytes(content)
    after = catalog_of(folder)
    after.refresh()
    assert listed(after) == {1}


def test_two_thousand_archives_take_little_memory(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    folder.mkdir()
    answers = [(f"/jobs/{i:05d}", b'{"text":"' + b"x" * 1000 + b'"}') for i in range(200)]
    for number in range(2_000):
        job = job_id_of(number)
        content = pack_archive(job, overview_of(job), answers, is_compressed=False)
        (folder / job).write_bytes(content)
    catalog = catalog_of(folder)
    tracemalloc.start()
    try:
        catalog.refresh()
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(listed(catalog)) == 2_000
    # All archives together have 400 MB; each leaves its line in the list.
    assert kept < 8_000_000
    assert peak < 16_000_000
