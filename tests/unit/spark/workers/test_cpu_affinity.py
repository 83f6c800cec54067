"""CpuAffinity: which cores a TaskManager keeps to, and that no two have the same while others are free."""

import subprocess
import sys

import pytest

from headrace.cluster.task_executor.options import CPU_CORES, NUMBER_OF_TASK_SLOTS
from headrace.core.config import Settings
from headrace.spark.workers.cpu_affinity import (
    KEEP_TO_CORES,
    cores_of_place,
    take_place,
    width_of_places,
)

PROCESS = """
import os, sys
from headrace.spark.workers import cpu_affinity
from headrace.core.config import Settings
os.sched_getaffinity = lambda _: {3, 5}
kept = []
os.sched_setaffinity = lambda _, cores: kept.append(tuple(cores))
# Places of its own, beside those of TaskManagers that run on this host.
os.getuid = lambda: sys.argv[1]
place = cpu_affinity.take_place(Settings())
assert place is not None and kept == [place.cores]
print(*place.cores, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("place_index", "cores", "width", "expected"),
    [
        (0, (0, 1), 1, (0,)),
        (1, (0, 1), 1, (1,)),
        (2, (0, 1), 1, (0,)),
        (1, (4, 5, 6, 7, 8), 2, (6, 7)),
        (2, (4, 5, 6, 7, 8), 2, (4, 5)),
    ],
)
def test_places_are_given_out_in_turn(
    place_index: int, cores: tuple[int, ...], width: int, expected: tuple[int, ...]
) -> None:
    assert cores_of_place(place_index, cores, width) == expected


def test_a_task_manager_keeps_to_as_many_cores_as_it_can_use() -> None:
    assert width_of_places(2, Settings()) == 1
    assert width_of_places(8, Settings()) == 2
    assert width_of_places(8, Settings({CPU_CORES.key: "2.5"})) == 3
    assert width_of_places(8, Settings({NUMBER_OF_TASK_SLOTS.key: "4"})) == 4


def test_where_it_is_switched_off_or_one_would_take_all_nothing_is_taken() -> None:
    assert take_place(Settings({KEEP_TO_CORES.key: "false"})) is None
    assert take_place(Settings({NUMBER_OF_TASK_SLOTS.key: "100000"})) is None


def start(name: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def place_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_place_of_a_process_that_was_killed_is_free_again() -> None:
    name = f"test-{id(object())}"
    processes = [start(name)]
    try:
        assert place_of(processes[0]) == "3"
        processes.append(start(name))
        assert place_of(processes[1]) == "5"
        processes[0].kill()
        processes[0].wait(10)
        processes.append(start(name))
        assert place_of(processes[2]) == "3"
    finally:
        for process in processes:
            process.kill()
            process.communicate()
