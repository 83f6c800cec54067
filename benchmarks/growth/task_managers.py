"""How many more records per second do two TaskManagers take than one?

A keyed count per record in value state, over 10,000 keys, as fast as its source gives, on Spark: parallelism 1, where
everything stays in one process, and 2, where half of all records go to the other. Pairs of runs in changing order; the
figure is the median of their rates.

    python -m benchmarks.growth.task_managers [--turns 3]
"""

import argparse
import os
import statistics

from benchmarks.growth.series import Series, keep
from benchmarks.keyed_latency.program import Load, records_per_second, run_job, warm_laps

SECONDS, WARM_UP_SECONDS, PORTION_RATE = 6.0, 3.0, 1_000_000
"""A thousand records at once: what a record costs, not what a batch does."""


def rate_of(task_managers: int) -> float:
    """Return records per second."""
    load = Load(0, SECONDS + WARM_UP_SECONDS, task_managers, 10_000, PORTION_RATE * task_managers)
    laps = run_job("growth by TaskManagers", load, {}, None)
    return records_per_second(warm_laps(laps, WARM_UP_SECONDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    sizes = (1, 2)
    rates: dict[int, list[float]] = {size: [] for size in sizes}
    for turn in range(arguments.turns):
        for size in sizes if turn % 2 == 0 else sizes[::-1]:
            rates[size].append(rate_of(size))
            print(f"task_managers: {size}: {rates[size][-1]:,.0f} records/s", flush=True)
    values = tuple(statistics.median(rates[size]) for size in sizes)
    name = "keyed count per record"
    series = Series("task_managers", name, "TaskManagers", "records/s", 1.0, sizes, values)
    keep([series], load_before)


if __name__ == "__main__":
    main()
