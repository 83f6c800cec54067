"""What a leader finds in the storage of its cluster that no store looks at: files of leaders that were killed."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cluster.high_availability.high_availability_services import HighAvailabilityServices
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.ids import JobId
from headrace.graph.job_graph import JobGraph

JOB = JobId(b"j" * 16)
GRAPH = StoredJobGraph(JobGraph(JOB, "numbers", (), (), {}), 0, 1)


class KilledError(BaseException):
    """Nothing catches it."""


def services_at(folder: Path, now_ms: int) -> HighAvailabilityServices:
    settings = Settings(
        {
            "high-availability.type": "file",
            "high-availability.storageDir": str(folder / "storage"),
            "high-availability.cluster-id": "orders",
            "headrace.checkpoint.key-file": str(folder / "key"),
        }
    )
    return HighAvailabilityServices(settings, ManualClock(now_ms), random.Random(now_ms))


def killed_within(write: Callable[[], object], patched: pytest.MonkeyPatch) -> None:
    """Kill a leader when it has written a file and is about to give it its name."""

    def die(*_: object) -> None:
        raise KilledError

    with patched.context() as patch:
        for name in ("link", "replace", "unlink"):
            patch.setattr(os, name, die)
        with pytest.raises(KilledError):
            write()


def test_the_next_leader_deletes_what_a_killed_one_has_left_half_written_once_it_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = services_at(tmp_path, 0)
    killed.job_graph_store.put(GRAPH)
    for write in (
        lambda: killed.job_graph_store.put(GRAPH),
        lambda: killed.job_result_store.shut_out(JOB, {1}),
        lambda: killed.application_store.begin(1),
    ):
        killed_within(write, monkeypatch)
    folder = tmp_path / "storage" / "orders"
    left = [file for file in folder.rglob(".*") if file.is_file()]
    assert {file.relative_to(folder).parts[0] for file in left} == {
        "jobs", "job-results", "application",
    }  # fmt: skip
    dates = [file.stat().st_mtime_ns // 1_000_000 for file in left]

    services_at(tmp_path, min(dates) + 600_000).remove_leftovers()
    assert all(file.exists() for file in left), "its writer may come back"
    later = services_at(tmp_path, max(dates) + 600_001)
    later.remove_leftovers()
    assert not any(file.exists() for file in left)
    assert later.job_graph_store.recover(2, lambda: None) == [GRAPH]


def test_what_others_keep_in_hidden_files_of_the_storage_stays(tmp_path: Path) -> None:
    services = services_at(tmp_path, 10**15)
    services.application_store.begin(1)
    folder = tmp_path / "storage" / "orders" / "application"
    for name in (".nfs00000000000a1b2c", ".snapshot", ".keep.txt"):
        (folder / name).touch()
    services.remove_leftovers()
    assert len(list(folder.iterdir())) == 4
