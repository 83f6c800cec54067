"""How long do deploying, checkpointing and cancelling a job take, by the number of its tasks?

The steps of `benchmarks.tasks_per_job`: the real control plane with TaskManagers on loopback calls, all on one thread.

    python -m benchmarks.growth.tasks [--tasks 10 100 1000 10000]
"""

import argparse
import os

from benchmarks.growth.series import Series, keep
from benchmarks.tasks_per_job import measure

TASKS = (10, 100, 1_000, 10_000)
STEPS = ("deploy", "checkpoint", "cancel")


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--tasks", type=int, nargs="+", default=TASKS)
    arguments = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    found = [measure(count, is_all_to_all=False) for count in arguments.tasks]
    series: list[Series] = []
    for step in STEPS:
        values = tuple(figures[f"{step}_seconds"] for figures in found)
        sizes = tuple(figures["tasks"] for figures in found)
        print(f"tasks: {step}:", dict(zip(sizes, values, strict=True)), flush=True)
        series.append(Series("tasks", step, "tasks", "s", 1.0, sizes, values))
    keep(series, load_before)


if __name__ == "__main__":
    main()
