"""How many records per second does a keyed per-record Python function with value state take, against PyFlink?

The same program (`programs/keyed_count.py`, imports apart) runs on both engines in turn, as whole processes on this
machine, parallelism 1, with the same number of records; the figure is records over the job's own net run time, median
of `--repeats`. That time is what each engine says of its job: from its submission to its end, so it holds deployment
and the start of Python workers on both sides, and the start of the JVM on neither. Both engines run
the function in Python worker processes: PyFlink in its process mode, Headrace in Spark's workers. The key count
matters to PyFlink, whose state is behind a cache that is written back with every bundle, so several are measured.
A run whose final counts do not add up to the number of records is no result.

    python -m benchmarks.keyed_function [--keys 10 100 10000] [--repeats 3] [--pyflink-python PATH | --headrace-only]

Without an interpreter that has apache-flink 2.3.0, a virtual environment of its own is made for it, once.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from benchmarks.record import record_result

PROGRAM = Path(__file__).parent / "programs" / "keyed_count.py"
RUN_TIMEOUT_SECONDS = 900
# As `print` shows a tuple, after the number of the subtask where there are several.
FINAL_COUNT = re.compile(r"^(?:\d+> )?\((\d+), ?(\d+)\)$", re.MULTILINE)
PYFLINK = "apache-flink==2.3.0"
PYFLINK_ENVIRONMENT = Path(__file__).parents[1] / ".venv-pyflink"


def pyflink_python() -> str:
    """Return an interpreter with PyFlink, whose pins do not go with ours: in an environment of its own."""
    python = PYFLINK_ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print(f"installing {PYFLINK} into {PYFLINK_ENVIRONMENT.name}, once ...")
        venv.create(PYFLINK_ENVIRONMENT, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", PYFLINK]
        subprocess.run(install, check=True, timeout=RUN_TIMEOUT_SECONDS)
    return str(python)


def version_of(package: str, python: str) -> str:
    """Return the version of a package in the environment of an interpreter."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run_once(python: str, package: str, record_count: int, key_count: int) -> float:
    """Run the program on one engine; return its records per second."""
    # PyFlink starts `python` from PATH for its workers.
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [python, str(PROGRAM), package, str(record_count), str(key_count), "1"],
            cwd=directory,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_SECONDS,
            check=False,
        )
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            check_counts(done.stdout, record_count, key_count)
            return record_count / (json.loads(line)["net_runtime_ms"] / 1000)
    raise RuntimeError(f"{package} gave no result:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def check_counts(output: str, record_count: int, key_count: int) -> None:
    """Raise ValueError unless the final counts in `output` are one for each key and add up to all records."""
    counts = {int(key): int(count) for key, count in FINAL_COUNT.findall(output)}
    if len(counts) != key_count or sum(counts.values()) != record_count:
        raise ValueError(
            f"{len(counts)} keys with {sum(counts.values())} records instead of {key_count} with {record_count}"
        )


def main() -> None:
    """Compare both engines for several key counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pyflink-python")
    parser.add_argument("--headrace-only", action="store_true", help="without the rival")
    parser.add_argument("--records", type=int, default=500_000, help="the same for both engines")
    parser.add_argument("--keys", type=int, nargs="+", default=[10, 100, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    uneven = [count for count in arguments.keys if arguments.records % count]
    if uneven:
        parser.error(f"{arguments.records} records are no multiple of {uneven} keys")
    engines = {"headrace": sys.executable}
    if not arguments.headrace_only:
        engines["pyflink"] = arguments.pyflink_python or pyflink_python()
    for key_count in arguments.keys:
        rates: dict[str, list[float]] = {package: [] for package in engines}
        for _ in range(arguments.repeats):
            for package, python in engines.items():
                rates[package].append(run_once(python, package, arguments.records, key_count))
        medians = {package: statistics.median(rates[package]) for package in engines}
        figures: dict[str, Any] = {
            f"{package}_records_per_second": rate for package, rate in medians.items()
        }
        if "pyflink" in medians:
            figures["ratio"] = medians["headrace"] / medians["pyflink"]
            figures["pyflink_version"] = version_of("apache-flink", engines["pyflink"])
        counts: dict[str, Any] = {
            "keys": key_count,
            "records": arguments.records,
            "repeats": arguments.repeats,
        }
        record_result("keyed_function", counts | figures)


if __name__ == "__main__":
    main()
