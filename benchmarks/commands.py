"""How long does each command take that asks a cluster, from its start to its end?

A cluster of this process runs a job, and each command is a process of its own that speaks to it over REST, in turns
with an interpreter that does nothing. Figures are seconds of processor beyond that interpreter's, the best turn's:
others may share the machine. `cancel` and `stop` have a job of their own each time. `import_count` is how many of the
libraries that these commands never need were loaded by any of them.

`headrace info` asks no cluster: it runs a program up to its job, and takes what that takes. `program_s` is the same
program on an interpreter of its own, without a job, and `info_beyond_program_s` what the command adds.

    python -m benchmarks.commands [--turns 7] [--dry]
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.record import show_or_record
from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.lifecycle import JobStatus
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.waiting import wait_until

TARGET_S: Final = 0.3
JOB: Final = "JOB"
"""Stands for the id of the job."""
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "list": (),
    "rescale-info": (JOB,),
    "logs": ("--list",),
    "metrics": (JOB,),
    "exceptions": (JOB,),
    "top": ("--once", JOB),
    "flamegraph": ("-o", "-", "--folded", JOB, "1"),
    "state": (JOB,),
    "open": ("--print",),
    "cluster": ("info",),
    "checkpoint": (JOB,),
    "savepoint": (JOB,),
    "cancel": (JOB,),
    "stop": (JOB,),
}
ENDING: Final = frozenset({"cancel", "stop"})
HEAVY: Final = ("pyspark", "py4j", "pyarrow", "numpy", "pandas", "pydantic", "fastapi", "uvicorn")
PROGRAM: Final = """
from headrace import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda number: number + 1).print()
"""
SCRIPT: Final = f"""
import sys
from headrace.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print("LOADED", sum(name in sys.modules for name in {HEAVY!r}), file=sys.stderr)
"""


def submit() -> str:
    """Start a job that goes on, and return its id once it runs."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=50)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    numbers.key_by(lambda number: number % 3).reduce(max).filter(lambda _: False).print()
    client = env.execute_async("looked at")
    wait_until(lambda: client.get_job_status().result(10) is JobStatus.RUNNING, what="the job runs")
    return str(client.get_job_id())


def run_once(arguments: Sequence[str]) -> tuple[float, str]:
    """Run an interpreter to its end; return the seconds of processor that it took, and its standard error."""
    before = os.times()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[2:])} failed: {done.stderr[-1000:]}")
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system, done.stderr


def measure(address: str, turns: int) -> dict[str, Any]:
    """Run every command in turns, and return the best seconds of each."""
    job = submit()
    place = address.removeprefix("http://")
    bare: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    import_count = 0
    for _ in range(turns):
        bare.append(run_once(["-c", "pass"])[0])
        for name, words in COMMANDS.items():
            own = submit() if name in ENDING else job
            given = [own if word == JOB else word for word in words]
            seconds, told = run_once(["-c", SCRIPT, name, *given, "-m", place])
            found[name].append(seconds)
            import_count += int(told.rpartition("LOADED ")[2])
    seconds = {name: round(min(each) - min(bare), 3) for name, each in found.items()}
    info_s, program_s = (round(each - min(bare), 3) for each in measure_info(turns))
    return {
        "turns": turns,
        **{f"{name.replace('-', '_')}_s": each for name, each in seconds.items()},
        "info_s": info_s,
        "program_s": program_s,
        "info_beyond_program_s": round(info_s - program_s, 3),
        "slowest_s": max(seconds.values()),
        "target_s": TARGET_S,
        "import_count": import_count,
    }


def measure_info(turns: int) -> tuple[float, float]:
    """Return the best seconds of `headrace info` of a program, and of the program alone."""
    with tempfile.TemporaryDirectory() as folder:
        program, alone = Path(folder) / "program.py", Path(folder) / "alone.py"
        program.write_text(f"{PROGRAM}env.execute()\n")
        alone.write_text(PROGRAM)
        taken = [
            (run_once(["-m", "headrace", "info", str(program)])[0], run_once([str(alone)])[0])
            for _ in range(turns)
        ]
    return min(info for info, _ in taken), min(program for _, program in taken)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commands", description=__doc__)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--dry", action="store_true", help="print only, keep no result")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HEADRACE_HOME"] = folder
        settings = {
            "rest.enabled": "true",
            "rest.port": "0",
            "rest.authentication": "none",
            "rest.flamegraph.enabled": "true",
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.dir": str(Path(folder) / "checkpoints"),
            "execution.checkpointing.savepoint-dir": str(Path(folder) / "savepoints"),
        }
        with MiniClusterExecutor(slot_count=4, settings=settings) as executor:
            figures = measure(executor.rest_address, options.turns)
    show_or_record("commands", figures, is_dry=options.dry)


if __name__ == "__main__":
    main()
