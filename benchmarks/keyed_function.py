"""How many records per second does a keyed per-record Python function with value state take, against PyFlink?

The same program (`programs/keyed_count.py`, imports apart) runs on both engines in turn, as whole processes on this
machine, parallelism 1; the figure is records over the job's own net run time, median of `--repeats`. Both engines run
the function in Python worker processes: PyFlink in its process mode, Headrace in Spark's workers. The key count
matters to PyFlink, whose state is behind a cache that is written back with every bundle, so several are measured.

    python -m benchmarks.keyed_function [--pyflink-python PATH]

Without an interpreter that has apache-flink 2.3.0, a virtual environment of its own is made for it, once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks.record import record_result

PROGRAM = Path(__file__).parent / "programs" / "keyed_count.py"
RUN_TIMEOUT_SECONDS = 900
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
            return record_count / (json.loads(line)["net_runtime_ms"] / 1000)
    raise RuntimeError(f"{package} gave no result:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


def main() -> None:
    """Compare both engines for several key counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pyflink-python")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--pyflink-records", type=int, default=200_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    pyflink_interpreter = arguments.pyflink_python or pyflink_python()
    for key_count in arguments.keys:
        headrace: list[float] = []
        pyflink: list[float] = []
        for _ in range(arguments.repeats):
            headrace.append(run_once(sys.executable, "headrace", arguments.records, key_count))
            pyflink.append(
                run_once(pyflink_interpreter, "pyflink", arguments.pyflink_records, key_count)
            )
        ours, theirs = statistics.median(headrace), statistics.median(pyflink)
        record_result(
            "keyed_function",
            {
                "keys": key_count,
                "headrace_records_per_second": ours,
                "pyflink_records_per_second": theirs,
                "ratio": ours / theirs,
                "repeats": arguments.repeats,
            },
        )


if __name__ == "__main__":
    main()
