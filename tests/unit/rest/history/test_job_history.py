"""JobHistory: archives of ended jobs, written beside everything else, and metrics of running ones."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import fs

from headrace.checkpoint.storage.file_systems import register_file_system
from headrace.core.clock import ManualClock, SystemClock
from headrace.core.config import Settings
from headrace.core.randomness import system_random
from headrace.core.threads import EventLoopThread
from headrace.gateways.errors import UnknownJobError
from headrace.gateways.job_master import JobDetails
from headrace.rest.history import job_archivist
from headrace.rest.history.archive_catalog import ArchiveCatalog, OverviewCache, RetentionRules
from headrace.rest.history.archive_file import read_answer, read_index
from headrace.rest.history.archive_storage import list_archives, open_archive
from headrace.rest.history.job_history import JobHistory
from tests.unit.rest.history.archived_jobs import failed_job
from tests.unit.rest.sample_cluster import (
    FAILED_JOB,
    RUNNING_JOB,
    UNKNOWN_JOB,
    SampleDispatcher,
    details,
)


@pytest.fixture
def control() -> Iterator[EventLoopThread]:
    thread = EventLoopThread("sample control")
    yield thread
    thread.stop()


def history_in(folder: Path | None) -> JobHistory:
    given = {} if folder is None else {"jobmanager.archive.fs.dir": str(folder)}
    return JobHistory(Settings(given), SystemClock(), system_random())


def archived(folder: Path, path: str) -> bytes | None:
    (archive,) = list_archives(str(folder))
    with open_archive(archive) as file:
        return read_answer(archive.uri, file, read_index(archive.uri, file), path)


def test_a_job_that_ends_leaves_one_file_with_its_id(tmp_path: Path) -> None:
    history = history_in(tmp_path / "new" / "folder")
    history.job_ended(failed_job())
    history.close()
    folder = tmp_path / "new" / "folder"
    assert [file.name for file in folder.iterdir()] == [FAILED_JOB.hex()]
    assert b'"name":"cities"' in (archived(folder, f"/jobs/{FAILED_JOB.hex()}") or b"")


def test_an_archive_is_for_its_owner_alone(tmp_path: Path) -> None:
    history = history_in(tmp_path / "archives")
    history.job_ended(failed_job())
    history.close()
    assert (tmp_path / "archives").stat().st_mode & 0o077 == 0
    assert (tmp_path / "archives" / FAILED_JOB.hex()).stat().st_mode & 0o077 == 0


def test_an_archive_that_is_there_is_not_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FAILED_JOB.hex()).write_bytes(b"older")
    history = history_in(tmp_path)
    history.job_ended(failed_job())
    history.close()
    assert (tmp_path / FAILED_JOB.hex()).read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == [FAILED_JOB.hex()]
    assert "has an archive already" in caplog.text


@pytest.fixture
def store() -> fs.FileSystem:
    """An object store: `archives://bucket/…`."""
    kept = fs._MockFileSystem()
    register_file_system("archives", lambda uri: (kept, uri.removeprefix("archives://")))
    return kept


def test_archives_of_an_object_store_are_written_listed_and_deleted(
    store: fs.FileSystem, tmp_path: Path
) -> None:
    folder = "archives://bucket/history"
    history = JobHistory(
        Settings({"jobmanager.archive.fs.dir": folder}), SystemClock(), system_random()
    )
    history.job_ended(failed_job())
    history.job_ended(failed_job())
    history.close()
    found = store.get_file_info(fs.FileSelector("bucket/history"))
    assert [each.base_name for each in found] == [FAILED_JOB.hex()]

    rules = RetentionRules(age_max_ms=1_000.0)
    cache = OverviewCache(tmp_path, [folder])
    clock = ManualClock(SystemClock().now_ms())
    catalog = ArchiveCatalog([folder], rules, cache, clock)
    catalog.refresh()
    path = f"/jobs/{FAILED_JOB.hex()}"
    assert b'"name":"cities"' in catalog.answer(FAILED_JOB.hex(), path)
    clock.advance_ms(10**15)
    catalog.refresh()
    assert catalog.statuses() == []
    assert store.get_file_info(fs.FileSelector("bucket/history")) == []


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    history = history_in(None)
    history.job_ended(failed_job())
    history.close()
    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_cannot_be_written_is_told_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("where the folder should be")
    history = history_in(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        history.job_ended(failed_job())
        history.close()
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"the archive of job {FAILED_JOB.hex()} could not be written" in told


def test_a_write_that_fails_leaves_no_part_of_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    history = history_in(tmp_path)
    history.job_ended(failed_job())
    history.close()
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in caplog.text


def test_the_end_of_a_cluster_waits_for_archives_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on, is_writing = threading.Event(), threading.Event()
    render = job_archivist.render_archive

    def slowly(*arguments: Any) -> bytes:
        is_writing.set()
        goes_on.wait(30)
        return render(*arguments)

    monkeypatch.setattr(job_archivist, "render_archive", slowly)
    history = history_in(tmp_path / "late")
    history.job_ended(failed_job())
    assert is_writing.wait(30)
    history.close(timeout_s=0.01)
    assert "1 archive(s) of ended jobs were not written within 0.01 s" in caplog.text

    is_writing.clear()
    patient = history_in(tmp_path / "in time")
    patient.job_ended(failed_job())
    assert is_writing.wait(30)
    goes_on.set()
    patient.close()
    assert (tmp_path / "in time" / FAILED_JOB.hex()).exists()


def test_more_jobs_than_a_hanging_store_can_take_get_no_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(job_archivist, "_WAITING_MAX", 2)
    monkeypatch.setattr(job_archivist, "render_archive", lambda *_: bytes(goes_on.wait(30)))
    history = history_in(tmp_path)
    for _ in range(3):
        history.job_ended(failed_job())
    goes_on.set()
    history.close()
    assert "gets no archive: 2 other archives are still waiting" in caplog.text


def test_running_jobs_are_looked_at_and_their_points_told(control: EventLoopThread) -> None:
    looked = threading.Event()

    class Watched(SampleDispatcher):
        async def list_jobs(self) -> Any:
            if self.calls.get("request_job_details"):
                looked.set()
            return await super().list_jobs()

        async def request_job_details(self, job_id: Any, metrics_age_max_ms: int = 0) -> JobDetails:
            assert job_id == RUNNING_JOB, "only running jobs are looked at"
            looked.set()
            return await super().request_job_details(job_id, metrics_age_max_ms)

    history = history_in(None)
    history.watch(Watched(), control.loop)  # type: ignore[arg-type]
    assert looked.wait(30)
    for _ in range(5_000):
        found = asyncio.run(history.metrics_of(RUNNING_JOB))
        if found.timestamps:
            break
    assert found.vertices[1].back_pressured == [300.0]
    assert asyncio.run(history.metrics_of(UNKNOWN_JOB)).timestamps == []
    history.stop_watching()
    history.close()


@pytest.mark.parametrize("error", [UnknownJobError("gone"), TimeoutError(), RuntimeError("busy")])
def test_a_job_that_cannot_be_looked_at_hides_no_other(
    control: EventLoopThread, error: Exception
) -> None:
    looked = threading.Event()

    class Watched(SampleDispatcher):
        async def list_jobs(self) -> Any:
            jobs = await super().list_jobs()
            return (msgspec.structs.replace(jobs[0], job_id=UNKNOWN_JOB), *jobs)

        async def request_job_details(self, job_id: Any, metrics_age_max_ms: int = 0) -> JobDetails:
            if job_id == UNKNOWN_JOB:
                raise error
            looked.set()
            return await super().request_job_details(job_id, metrics_age_max_ms)

    history = history_in(None)
    history.watch(Watched(), control.loop)  # type: ignore[arg-type]
    assert looked.wait(30)
    history.stop_watching()
    history.close()


def test_a_call_that_a_loop_never_came_to_is_closed_with_it() -> None:
    calls: list[Coroutine[Any, Any, Any]] = []
    is_asked = threading.Event()

    class Loop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(self, *arguments: Any, **named: Any) -> asyncio.Handle:
            handle = super().call_soon_threadsafe(*arguments, **named)
            is_asked.set()
            return handle

    class Watched(SampleDispatcher):
        def list_jobs(self) -> Any:
            calls.append(super().list_jobs())
            return calls[-1]

    history, loop = history_in(None), Loop()
    history.watch(Watched(), loop)  # type: ignore[arg-type]
    assert is_asked.wait(30)
    loop.close()
    history.stop_watching()
    history.close()
    assert [inspect.getcoroutinestate(call) for call in calls] == [inspect.CORO_CLOSED]


def test_the_last_point_of_a_job_is_that_of_its_end(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    job = failed_job()
    history.job_ended(job)
    found = asyncio.run(history.metrics_of(FAILED_JOB))
    history.close()
    assert [vertex.name for vertex in found.vertices] == [
        vertex.name for vertex in details(FAILED_JOB, job.details.status).vertices
    ]
    assert len(found.timestamps) == 1
    kept = archived(tmp_path, f"/jobs/{FAILED_JOB.hex()}/metrics-history")
    assert kept == found.model_dump_json(by_alias=True).encode()


def test_a_cluster_that_has_ended_is_not_asked_any_more(control: EventLoopThread) -> None:
    history = history_in(None)
    history.watch(SampleDispatcher(), control.loop)  # type: ignore[arg-type]
    history.stop_watching()
    control.stop()
    history.stop_watching()
    history.close()
    assert control.loop.is_closed()
