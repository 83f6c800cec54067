"""The process from which Spark forks its Python workers, with the modules that TaskManagers and stages need loaded.

    python -m headrace.spark.python_daemon pyspark.worker

Spark's own (`pyspark.daemon`) loads none of them, so that every worker does it again: a second of processor time each.
Sessions that Headrace creates on this host name this module instead (`spark.python.daemon.module`). Two libraries start
threads as they are loaded, OpenBLAS and Arrow's memory pool, and both start them again in a fork. numpy seeds its
global generator as it is loaded: each fork seeds it again, or all would draw the same numbers.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from pyspark import daemon

from headrace.core.process.interpreter import settle_interpreter

WORKER: Final = "pyspark.worker"
"""The program of workers that run tasks. Spark has others, for steps of planning, which need none of our modules."""
_MODULES: Final = (
    WORKER,
    "headrace.spark.batch.stage_body",
    "headrace.spark.workers.worker",
    "headrace.cluster.task_executor.task_manager_runner",
    "headrace.network.environment",
)


def load_modules(arguments: Sequence[str]) -> None:
    """Load what the workers of this daemon need, and let forks share it; `arguments`: those of the daemon."""
    if WORKER not in arguments:
        return
    for name in _MODULES:
        importlib.import_module(name)
    settle_interpreter()
    os.register_at_fork(after_in_child=_seed)


def _seed() -> None:
    np.random.seed()  # noqa: TID251 - users' functions may draw from the global generator


if __name__ == "__main__":
    load_modules(sys.argv[1:])
    daemon.manager()
