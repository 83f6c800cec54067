"""Python workers of a session that Headrace creates are forked with their modules loaded."""

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.python_daemon import load_modules
from headrace.spark.session.session import HostSession

DAEMON = """
import os, signal, sys
from headrace.spark.python_daemon import end_when_idle

child = os.fork()
if child == 0:
    os.read(0, 1)  # until the test closes its end
    os._exit(0)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.close(0)
looks = 0
end_when_idle(0.05)
look = signal.getsignal(signal.SIGALRM)

def counted(number, frame):
    global looks
    looks += 1
    look(number, frame)
    print(looks, flush=True)

signal.signal(signal.SIGALRM, counted)
while True:
    signal.pause()
"""
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


def test_a_daemon_whose_workers_have_gone_ends_as_if_spark_had_ended_it() -> None:
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON], stdin=read_end, stdout=subprocess.PIPE, text=True
    ) as daemon:
        os.close(read_end)
        assert daemon.stdout is not None
        for look in range(1, 6):
            assert daemon.stdout.readline() == f"{look}\n", "it has a worker"
        os.close(write_end)
        assert daemon.wait(60) == -signal.SIGTERM
