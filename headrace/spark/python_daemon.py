"""The process from which Spark forks its Python workers; it preloads the modules that TaskManagers and stages need.

    python -m headrace.spark.python_daemon pyspark.worker

Spark's own daemon (`pyspark.daemon`) loads none of them, so that every worker must: a second of processor time each.
Sessions that Headrace creates on this host name this module instead (`spark.python.daemon.module`). Two libraries start
threads as they are loaded, OpenBLAS and Arrow's memory pool, and both start them again in a fork. numpy seeds its
global generator as it is loaded: each fork seeds it again, or all would draw the same numbers.

Spark starts a daemon for each set of environment variables that it was ever given, and ends it with the executor. A
daemon that serves BATCH jobs with certain files (`WORKERS_VARIABLE`) ends by itself once its workers have ended; when
Spark needs another worker, it starts the daemon again.
"""

import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final
from zipimport import zipimporter

import numpy as np
from pyspark import daemon

from headrace.cluster.versions import software_versions
from headrace.core.process.interpreter import settle_interpreter
from headrace.spark.options import WORKERS_VARIABLE

_IDLE_S: Final = 30.0
WORKER: Final = "pyspark.worker"
"""Program of the workers that run tasks; other Spark workers, for planning, need none of Headrace's modules."""
_MODULES: Final = (
    WORKER,
    "headrace.spark.batch.stage_body",
    "headrace.spark.workers.worker",
    "headrace.cluster.task_executor.task_manager_runner",
    "headrace.network.environment",
)


def load_modules(arguments: Sequence[str]) -> None:
    """Load the modules that this daemon's workers need, shared by forks; `arguments`: those of the daemon."""
    if WORKER not in arguments:
        return
    for name in _MODULES:
        importlib.import_module(name)
    with contextlib.suppress(ImportError):
        importlib.import_module("uvloop")
    settle_interpreter()
    # It looks through all folders and archives of the path.
    software_versions()
    keep_archives_of("pyspark", "py4j")
    os.register_at_fork(after_in_child=_seed)


def keep_archives_of(*packages: str) -> None:
    """Let forks reuse this process's cached contents of Spark's archives: those of `packages`, and jars on the path.

    Each Spark worker looks for new files of the job on its path, for which Python rereads the contents of archives.
    Spark's own archives do not change, and one of them is its jar of 6,000 classes: rereading it takes a tenth of a
    second of processor time in each worker, more than the rest of its start.
    """
    loaders = (getattr(sys.modules[package].__spec__, "loader", None) for package in packages)
    kept = {loader.archive for loader in loaders if isinstance(loader, zipimporter)}
    kept |= {entry for entry in sys.path if entry.endswith(".jar")}
    read_again = zipimporter.invalidate_caches

    def invalidate_caches(self: zipimporter) -> None:
        if self.archive not in kept:
            read_again(self)

    # Of the class: a worker makes more importers of the same archives, one for each package that it loads from.
    zipimporter.invalidate_caches = invalidate_caches


def end_when_idle(interval_s: float = _IDLE_S) -> None:
    """End this process as Spark ends a daemon, once two checks in a row found no worker. Main thread."""
    idle_looks = 0

    def look(_number: int, _frame: object) -> None:
        nonlocal idle_looks
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            idle_looks += 1
        else:
            idle_looks = 0
        if idle_looks >= 2:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, look)
    # Forks inherit no timer.
    signal.setitimer(signal.ITIMER_REAL, interval_s, interval_s)


def _seed() -> None:
    np.random.seed()  # noqa: TID251 - users' functions may draw from the global generator


if __name__ == "__main__":
    load_modules(sys.argv[1:])
    if WORKERS_VARIABLE in os.environ:
        end_when_idle()
    daemon.manager()
