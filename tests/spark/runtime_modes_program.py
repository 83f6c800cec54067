"""Runs programs and examples in both modes in one Spark application.

`runtime_modes_program.py <folder> <seed> <number of programs> <whether examples run>`; the seed draws the programs.

Prints a line for each: that the modes agree, or what each of them gave.
"""

import contextlib
import io
import os
import random
import runpy
import sys
from collections import Counter
from pathlib import Path

from headrace.api.executors import default_settings, set_default_settings
from headrace.datastream import StreamExecutionEnvironment
from testkit.waiting import wait_until
from tests.spark.programs import ROOT
from tests.unit.task.batch.modelled_functions import Event
from tests.unit.task.batch.modelled_programs import CASES, STEPS, Program, multiset

MODES = ("BATCH", "STREAMING")
EXAMPLES = {
    "late_departures_by_rule": 3,
    "orders_and_payments": 13,
    "requests_per_minute": 10,
    "every_reading_once": 1,
    "score_readings": 2,
    "new_york_departures": 5,
}
"""Lines that each prints, without those that say how long it took."""
ARGUMENTS = {
    # Nothing comes too late: in BATCH mode nothing ever does.
    "new_york_departures": [
        "--months",
        "1",
        "--out-of-orderness-hours",
        "24",
        "--output",
        "{folder}/out",
    ],
}
DURATION = " s; results and "
FOLDER = Path(sys.argv[1])
SEED, PROGRAM_COUNT, RUNS_EXAMPLES = map(int, sys.argv[2:5])
GIVEN = default_settings()


def set_mode(mode: str) -> None:
    set_default_settings({**GIVEN, "execution.runtime-mode": mode})


def drawn_programs(draw: random.Random) -> list[Program]:
    """Return a few programs; all steps stand before some case."""
    steps = list(STEPS)
    draw.shuffle(steps)
    names = [name for name, case in CASES.items() if not case.is_for_batch]
    half = PROGRAM_COUNT * 2
    return [
        Program(name, tuple(steps[at::half]), tuple(steps[PROGRAM_COUNT + at :: half]))
        for at, name in enumerate(draw.sample(names, PROGRAM_COUNT))
    ]


def drawn_events(draw: random.Random) -> list[Event]:
    return [(draw.randrange(6), draw.randrange(60)) for _ in range(60)]


def compare_program(program: Program, draw: random.Random) -> None:
    first, second = drawn_events(draw), drawn_events(draw)
    expected = multiset(program.expected(first, second))
    for mode in MODES:
        set_mode(mode)
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        with program.stream(env, first, second).execute_and_collect() as rows:
            found = multiset(program.settled(list(rows)))
        if found != expected:
            print("DIFFERENT", mode, program, found - expected, expected - found)
            return
    print("EQUAL program", program.case)


def example_lines(name: str, mode: str) -> Counter[str]:
    """Run an example and return what it printed, without the numbers of subtasks."""
    set_mode(mode)
    folder = FOLDER / f"{name}-{mode}"
    folder.mkdir()
    os.chdir(folder)
    printed = io.StringIO()
    sys.argv[1:] = [one.format(folder=folder) for one in ARGUMENTS.get(name, [])]
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        # Lines of workers come through a pipe, and may come after their job's end.
        wait_until(
            lambda: len(printed.getvalue().splitlines()) >= EXAMPLES[name], 30, f"lines of {name}"
        )
    return Counter(
        line.partition(", in ")[0].rpartition("> ")[2]
        for line in printed.getvalue().splitlines()
        if DURATION not in line
    )


def compare_example(name: str) -> None:
    batch, streaming = (example_lines(name, mode) for mode in MODES)
    if batch == streaming and batch.total() == EXAMPLES[name]:
        print("EQUAL example", name)
    else:
        print("DIFFERENT", name, batch, streaming)


if __name__ == "__main__":
    seeded = random.Random(SEED)
    for example in EXAMPLES if RUNS_EXAMPLES else ():
        compare_example(example)
    for drawn in drawn_programs(seeded):
        compare_program(drawn, seeded)
