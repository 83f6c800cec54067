"""A cached stream on Spark: made once for two jobs, and anew after Spark's worker that kept it was killed."""

from pathlib import Path

import pytest

from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = """
import os
import signal
from pathlib import Path

from headrace import StreamExecutionEnvironment, Types

PIDS = Path("pids").absolute()


def double(n):
    with open(PIDS, "a") as out:
        out.write(f"{os.getpid()}\\n")
    return 2 * n


def seen():
    pids = [int(line) for line in PIDS.read_text().split()] if PIDS.exists() else []
    PIDS.unlink(missing_ok=True)
    return pids


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection(list(range(100)), Types.LONG()).rebalance()
cached = numbers.map(double, Types.LONG()).cache()


def job(name):
    cached.key_by(lambda n: 0).reduce(lambda a, b: a + b).filter(lambda n: n == 9900).print()
    env.execute(name)
    pids = seen()
    print(name, len(pids), len(set(pids)), len(env.list_completed_cluster_datasets()), flush=True)
    return pids


makers = job("first")
job("second")
os.kill(makers[0], signal.SIGKILL)
job("third")
job("fourth")
env.close()
print("kept", len(env.list_completed_cluster_datasets()))
"""


def test_a_stream_is_made_once_and_anew_after_a_worker_that_kept_it_was_killed(
    tmp_path: Path, started: list[Program]
) -> None:
    program = headrace_run(tmp_path, PROGRAM, "--parallelism", "2")
    started.append(program)
    assert program.wait() == 0, program.report()
    own = [line.strip() for line in program.out if ">" not in line]
    expected = ["first 100 2 1", "second 0 0 1", "third 100 2 1", "fourth 0 0 1", "kept 0"]
    assert own == expected, program.report()
    assert sum(line.strip().endswith("> 9900") for line in program.out) == 4
    program.assert_nothing_is_left()
