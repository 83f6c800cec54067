"""Python workers of a session that Headrace creates are forked with their modules loaded."""

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.python_daemon import load_modules
from headrace.spark.session.session import HostSession

WORKERS = 2
NEEDED_BY_WORKERS = (
    "headrace.task.batch.stage_task",
    "headrace.network.environment",
    "headrace.cluster.task_executor.task_manager_runner",
)
TIMEOUT_S = 60.0


def of_own_process(folder: str) -> Iterator[Any]:
    """Wait for all other workers, so that each is a process; yield its number, its modules and what numpy draws."""
    # A module that is there before anything here is loaded; `numpy` is loaded here by name only.
    loaded = frozenset(sys.modules)
    import numpy as np

    Path(folder, str(os.getpid())).touch()
    deadline = time.monotonic() + TIMEOUT_S
    while len(os.listdir(folder)) < WORKERS:
        assert time.monotonic() < deadline, "the other worker does not come"
        time.sleep(0.01)
    yield os.getpid(), loaded, np.random.random()


def test_workers_share_what_is_loaded_and_draw_numbers_of_their_own(
    session: HostSession, tmp_path: Path
) -> None:
    folder = str(tmp_path)
    numbers = session.context.parallelize(range(WORKERS), WORKERS)
    found = numbers.mapPartitions(lambda _: of_own_process(folder)).collect()
    processes, modules, drawn = zip(*found, strict=True)
    assert len(set(processes)) == WORKERS
    for one in modules:
        assert set(NEEDED_BY_WORKERS) <= one
    assert len(set(drawn)) == WORKERS, "each would draw what the process they are forked from has"


def test_workers_of_another_kind_load_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(importlib, "import_module", asked.append)
    load_modules(["pyspark.sql.worker.plan_data_source_read"])
    assert asked == []
