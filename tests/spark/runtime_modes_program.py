"""Runs programs and examples in both modes in one Spark application.

`runtime_modes_program.py <folder> <seed> <whether examples run>`; the seed draws what stands before each case.

Prints a line for each: that the modes agree, or what each of them gave.
"""

import contextlib
import io
import json
import os
import random
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from headrace.api.executors import default_settings, set_default_settings
from headrace.datastream import StreamExecutionEnvironment
from testkit.waiting import wait_until
from tests.spark.programs import ROOT
from tests.unit.task.batch.modelled_functions import RESULT, Event
from tests.unit.task.batch.modelled_programs import CASES, STEPS, Program, multiset

MODES = ("BATCH", "STREAMING")
EXAMPLES = {
    "delay_per_airport": 3,
    "late_departures_by_rule": 3,
    "orders_and_payments": 13,
    "requests_per_minute": 10,
    "every_reading_once": 1,
    "score_readings": 2,
    "new_york_departures": 5,
}
"""Lines that each prints, without those that say how long it took."""
GROWING = {"delay_per_airport": 4}
"""Lines in STREAMING mode of those that print a result again when it has changed: the last of each key counts."""
NOTEBOOK = "streams_in_a_notebook"
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
SEED, RUNS_EXAMPLES = map(int, sys.argv[2:4])
TOGETHER = 8
GIVEN = default_settings()


def set_mode(mode: str) -> None:
    set_default_settings({**GIVEN, "execution.runtime-mode": mode})


def drawn_programs(draw: random.Random) -> list[Program]:
    """Return a program for each case; each step stands before some case, for its first stream and for its second."""
    programs: list[Program] = []
    names, sides = list(CASES), [list(STEPS), list(STEPS)]
    for one in (names, *sides):
        draw.shuffle(one)
    for place, name in enumerate(names):
        first, second = (tuple(steps[place : place + 1]) for steps in sides)
        programs.append(Program(name, first, second))
    return programs


def drawn_events(draw: random.Random) -> list[Event]:
    return [(draw.randrange(6), draw.randrange(60)) for _ in range(60)]


def compare_programs(programs: list[Program], draw: random.Random) -> None:
    """Run programs as one job in each mode, as a start of a job takes longer than 60 events."""
    events = [(drawn_events(draw), drawn_events(draw)) for _ in programs]
    is_equal = dict.fromkeys(range(len(programs)), True)
    for mode in MODES:
        set_mode(mode)
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        chosen = [
            place
            for place, program in enumerate(programs)
            if mode == "BATCH" or not CASES[program.case].is_for_batch
        ]
        streams = [
            programs[place]
            .stream(env, *events[place])
            .map(lambda one, place=place: (place, one), RESULT)
            for place in chosen
        ]
        found: dict[int, list[Any]] = {place: [] for place in chosen}
        with streams[0].union(*streams[1:]).execute_and_collect() as rows:
            for place, row in rows:
                found[place].append(row)
        for place in chosen:
            program = programs[place]
            expected = multiset(program.expected(*events[place]))
            given = multiset(program.settled(found[place]))
            if given != expected:
                is_equal[place] = False
                print("DIFFERENT", mode, program, given - expected, expected - given)
    for place, program in enumerate(programs):
        if is_equal[place]:
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
        count = GROWING.get(name, 0) if mode == "STREAMING" else 0
        count = count or EXAMPLES[name]
        wait_until(
            lambda: len(printed.getvalue().splitlines()) >= count, 30, f"{count} lines of {name}"
        )
    lines = [
        line.partition(", in ")[0].rpartition("> ")[2]
        for line in printed.getvalue().splitlines()
        if DURATION not in line
    ]
    if name in GROWING:
        lines = list({line.partition(",")[0]: line for line in lines}.values())
    return Counter(lines)


def notebook_values(mode: str) -> list[Any]:
    """Run the cells before the job without an end, which BATCH mode refuses; return the rows of its streams."""
    set_mode(mode)
    cells = json.loads((ROOT / "examples" / f"{NOTEBOOK}.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        text = "".join(cell["source"])
        if "execute_async" in text:
            break
        if cell["cell_type"] == "code":
            exec(text, names)
    preview = names["late"].preview(2)
    hours = names["hours"].to_arrow().sort_by("origin").to_pylist()
    return [sorted(map(repr, preview.rows)), hours]


def compare_example(name: str) -> None:
    batch, streaming = (example_lines(name, mode) for mode in MODES)
    if batch == streaming and batch.total() == EXAMPLES[name]:
        print("EQUAL example", name)
    else:
        print("DIFFERENT", name, batch, streaming)


def compare_notebook() -> None:
    batch, streaming = map(notebook_values, MODES)
    if batch == streaming and len(batch[1]) == 2:
        print("EQUAL example", NOTEBOOK)
    else:
        print("DIFFERENT", NOTEBOOK, batch, streaming)


if __name__ == "__main__":
    seeded = random.Random(SEED)
    for example in EXAMPLES if RUNS_EXAMPLES else ():
        compare_example(example)
    if RUNS_EXAMPLES:
        compare_notebook()
    drawn = drawn_programs(seeded)
    for begin in range(0, len(drawn), TOGETHER):
        compare_programs(drawn[begin : begin + TOGETHER], seeded)
