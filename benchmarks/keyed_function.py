"""How many records per second does a keyed per-record Python function with value state take, against PyFlink?

The same program (`programs/keyed_count.py`, imports apart) runs on both engines in turn, as whole processes on this
machine, parallelism 1, with an exactly-once checkpoint every second; the figure is records over the job's own net run
time, median of `--repeats`. That time is what each engine says of its job: from its submission to its end, so it holds
deployment and the start of Python workers on both sides, and the start of the JVM on neither. Headrace is given more
records, so that it completes ten checkpoints too. Both engines run the function in Python worker processes, which the
program proves: on one machine PyFlink would run it as a thread of the client, unless it is told otherwise. PyFlink's
cache of state is made as large as the number of keys, as it writes back what does not fit with every bundle.
A run whose final counts do not add up to the number of records is no result.

    python -m benchmarks.keyed_function [--keys 10 100 10000] [--repeats 3] [--pyflink-python PATH | --headrace-only]

Each turn is kept, so what was interrupted goes on where it was: `--minutes 6` begins no turn after that time and exits
with 3 where some are left. Without an interpreter that has apache-flink 2.3.0, a virtual environment of its own is made
for it, once.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.record import record_result
from headrace.spark.session.java_runtime import ensure_java

PROGRAM = Path(__file__).parent / "programs" / "keyed_count.py"
RUN_TIMEOUT_SECONDS = 900
WATCH_SECONDS = 0.02
TURNS = Path(tempfile.gettempdir()) / "keyed_function_turns.json"
NOT_DONE = 3
"""Exit code: turns are left."""
Turn = Mapping[str, float]
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


def run_once(python: str, package: str, record_count: int, key_count: int) -> Turn:
    """Run the program on one engine."""
    # PyFlink starts `python` from PATH for its workers. Without the variable it runs all of them as threads of the
    # client, where client and cluster share a machine.
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
    variables = os.environ | {"PATH": path, "_python_worker_execution_mode": "process"}
    ensure_java(variables)
    with tempfile.TemporaryDirectory() as directory, CheckpointWatch(Path(directory)) as watch:
        done = subprocess.run(
            [python, str(PROGRAM), package, str(record_count), str(key_count), "1", directory],
            cwd=directory,
            env=variables,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_SECONDS,
            check=False,
        )
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            check_counts(done.stdout, record_count, key_count)
            figures = json.loads(line)
            if not figures["processes"]:
                raise ValueError(f"the function ran in {package}'s own process, as a thread")
            rate = record_count / (figures["net_runtime_ms"] / 1000)
            return {"rate": rate, "checkpoints": len(watch.seen)}
    raise RuntimeError(f"{package} gave no result:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


class CheckpointWatch:
    """Counts checkpoints that are completed below a folder while the context lasts: their folders have a metadata file.

    Both engines lay them out alike, and tell a program nothing of them that is over when it asks.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seen: set[Path] = set()

    def __enter__(self) -> "CheckpointWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Take in what is there now."""
        with suppress(OSError):  # a folder goes while it is read
            self.seen |= {file.parent for file in self._directory.glob("*/chk-*/_metadata")}

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            self.look()


def check_counts(output: str, record_count: int, key_count: int) -> None:
    """Raise ValueError unless the final counts in `output` are one for each key and add up to all records."""
    counts = {int(key): int(count) for key, count in FINAL_COUNT.findall(output)}
    if len(counts) != key_count or sum(counts.values()) != record_count:
        raise ValueError(
            f"{len(counts)} keys with {sum(counts.values())} records instead of {key_count} with {record_count}"
        )


def summary(package: str, turns: Sequence[Turn], record_count: int) -> dict[str, Any]:
    """Return the median of an engine's turns, and the least number of checkpoints that one completed."""
    return {
        f"{package}_records_per_second": statistics.median(turn["rate"] for turn in turns),
        f"{package}_records": record_count,
        f"{package}_turns": len(turns),
        f"{package}_checkpoints": min(turn["checkpoints"] for turn in turns),
    }


def parse_arguments() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--pyflink-python")
    parser.add_argument("--headrace-only", action="store_true", help="without the rival")
    parser.add_argument("--records", type=int, default=12_000_000, help="(%(default)s)")
    parser.add_argument("--pyflink-records", type=int, default=1_000_000, help="(%(default)s)")
    parser.add_argument("--keys", type=int, nargs="+", default=[10, 100, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--turns", type=Path, default=TURNS, help="where they are kept (%(default)s)"
    )
    parser.add_argument(
        "--minutes", type=float, help="begin no turn after so long, exit with 3 if some are left"
    )
    arguments = parser.parse_args()
    counts = (arguments.records, arguments.pyflink_records)
    uneven = [keys for keys in arguments.keys if any(count % keys for count in counts)]
    if uneven:
        parser.error(f"{counts} records are no multiples of {uneven} keys")
    return arguments


def main() -> None:
    """Compare both engines for several key counts."""
    arguments = parse_arguments()
    engines = {"headrace": (sys.executable, arguments.records)}
    if not arguments.headrace_only:
        python = arguments.pyflink_python or pyflink_python()
        engines["pyflink"] = (python, arguments.pyflink_records)
    started = time.monotonic()
    kept = json.loads(arguments.turns.read_text()) if arguments.turns.exists() else {}
    for key_count in arguments.keys:
        for number in range(arguments.repeats):
            for package, (python, record_count) in engines.items():
                place = f"{package}, {key_count} keys, {record_count} records, turn {number + 1}"
                if place in kept:
                    continue
                if arguments.minutes and time.monotonic() - started > arguments.minutes * 60:
                    print(f"next: {place}; run the same command again")
                    sys.exit(NOT_DONE)
                kept[place] = run_once(python, package, record_count, key_count)
                arguments.turns.write_text(json.dumps(kept))
    for key_count in arguments.keys:
        figures: dict[str, Any] = {"keys": key_count, "checkpoint_interval_ms": 1000}
        for package, (_, record_count) in engines.items():
            places = f"{package}, {key_count} keys, {record_count} records, turn "
            turns = [turn for place, turn in kept.items() if place.startswith(places)]
            figures |= summary(package, turns, record_count)
        if "pyflink" in engines:
            rates = [figures[f"{package}_records_per_second"] for package in engines]
            figures["ratio"] = rates[0] / rates[1]
            figures["pyflink_mode"] = "process"
            figures["pyflink_version"] = version_of("apache-flink", engines["pyflink"][0])
        record_result("keyed_function", figures)
    arguments.turns.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
