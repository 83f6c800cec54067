"""Processor cores of the processes of one measurement: each keeps to some of its own, as a TaskManager's process does.

Cores are inherited by threads and by child processes. So a process takes its place before it starts its data plane, and
starts others, which are to take places of their own or to have none, `on_all_cores`.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from headrace.core.config import Settings
from headrace.core.threads import share_interpreter
from headrace.spark.workers.cpu_affinity import take_place


@contextmanager
def as_task_manager(cores: Sequence[int] = ()) -> Generator[tuple[int, ...]]:
    """Keep to a place of one's own, or to `cores`, until the end of the block; yields the cores.

    Threads take turns as often as in a TaskManager from then on.
    """
    share_interpreter()
    before = os.sched_getaffinity(0)
    place = None if cores else take_place(Settings())
    if cores:
        os.sched_setaffinity(0, cores)
    try:
        yield tuple(sorted(os.sched_getaffinity(0)))
    finally:
        os.sched_setaffinity(0, before)
        if place is not None:
            place.release()
