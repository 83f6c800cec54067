"""Spark takes an executor away, or it is told to end: the job goes on elsewhere within seconds, each record once."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.core.clock import SystemClock
from testkit.exactly_once import compare_output, lines_of_files
from testkit.waiting import wait_until
from tests.spark.processes import Process, new_mark, parent_pid_of
from tests.spark.programs import PATIENCE_S, Program, headrace_run
from tests.spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

MASTER = "local-cluster[3,2,1024]"
"""Two executors have room for the TaskManagers of the third."""
COUNT = 12_000
NO_HEARTBEATS = ("-D", "heartbeat.timeout=10 min")
"""Whoever learnt of a loss from heartbeats that do not come would learn it too late."""
PROGRAM = f"""
import time
from headrace.common import Encoder, Types, WatermarkStrategy
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.lifecycle import ExecutionState
from headrace.datastream import StreamExecutionEnvironment
from headrace.datastream.connectors.file_system import FileSink

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.enable_checkpointing(INTERVAL_MS)
numbers = env.from_source(
    DataGeneratorSource(lambda index: index, {COUNT}, type_info=Types.LONG(), rows_per_second=400),
    WatermarkStrategy.no_watermarks(),
    "numbers",
)
lines = numbers.key_by(lambda n: n % 7, key_type=Types.LONG()).map(str, output_type=Types.STRING())
lines.sink_to(FileSink.for_row_format("lines", Encoder.simple_string_encoder()).build())
client = env.execute_async("numbers")
told = -1
while True:
    details = client.get_job_details().result()
    if details.status.is_globally_terminal_state():
        break
    subtasks = [s for v in details.vertices for s in v.subtasks]
    attempt = max(s.attempt_number for s in subtasks)
    if attempt > told and {{s.state for s in subtasks}} == {{ExecutionState.RUNNING}}:
        told = attempt
        print("RUNNING", attempt)
    time.sleep(0.02)
print("ENDED", details.status.name)
client.get_job_execution_result().result()
"""
NO_FAILURES = (
    "-D", "restart-strategy.type=fixed-delay",
    "-D", "restart-strategy.fixed-delay.attempts=0",
    "-D", "restart-strategy.fixed-delay.delay=30 s",
    "-D", "headrace.decommission.grace=5 min",
)  # fmt: skip
"""No failure may be followed by a restart, and a checkpoint is waited for on a busy machine too."""


def start_on(
    options: tuple[str, ...], folder: Path, started: list[Program], interval_ms: int
) -> Program:
    text = PROGRAM.replace("INTERVAL_MS", str(interval_ms))
    program = headrace_run(folder, text, "--progress", *NO_HEARTBEATS, *options)
    started.append(program)
    program.wait_for_line("RUNNING 0")
    return program


def start(folder: Path, started: list[Program], interval_ms: int, *options: str) -> Program:
    program = start_on(("--master", MASTER, *options), folder, started, interval_ms)
    wait_until(lambda: len(program.task_managers()) == 2, 30, "two TaskManagers")
    return program


def seconds_until_running_again(program: Program, pid: int, number: int) -> float:
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    attempts = [int(line.split()[1]) for line in list(program.out) if line.startswith("RUNNING")]
    os.kill(pid, number)
    program.wait_for_line(f"RUNNING {attempts[-1] + 1}\n")
    return (clock.monotonic_ms() - started_ms) / 1000


def assert_it_was_left_and_ends(
    program: Program, executor: Process, executors: Callable[[], list[Process]]
) -> None:
    wait_until(
        lambda: executor.pid not in {one.pid for one in executors()},
        PATIENCE_S,
        f"the executor is gone\n{program.report()}",
    )
    told = [line for line in program.err if "is decommissioned" in line]
    assert any("Spark is removing its executor" in line for line in told), program.report()


def assert_each_line_once(program: Program, folder: Path) -> None:
    assert program.wait() == 0, program.report()
    lines = [line for part in lines_of_files(folder / "lines").values() for line in part]
    compare_output(map(str, range(COUNT)), lines).check()
    program.assert_nothing_is_left()


@pytest.mark.repetition("an executor of a standalone cluster is left with its worker")
def test_a_decommissioned_executor_is_left_after_a_checkpoint_and_ends_by_itself(
    tmp_path: Path, started: list[Program]
) -> None:
    # Checkpoints are far apart: without one of its own the restart would begin from the start.
    program = start(
        tmp_path, started, 600_000, "-D", "spark.decommission.enabled=true", *NO_FAILURES
    )
    executor = program.executor_of(program.task_managers()[0])
    took_s = seconds_until_running_again(program, executor.pid, signal.SIGPWR)
    print(f"running again {took_s:.1f} s after SIGPWR")
    assert_it_was_left_and_ends(program, executor, program.executors)
    assert_each_line_once(program, tmp_path)


@pytest.mark.long
def test_a_decommissioned_worker_of_a_standalone_cluster_takes_its_executor_along(
    tmp_path: Path, started: list[Program]
) -> None:
    cluster = StandaloneCluster(
        tmp_path / "cluster",
        new_mark(),
        cores_per_worker=3,
        properties="spark.decommission.enabled true\n",
    )
    try:
        options = ("-D", "spark.decommission.enabled=true", "-D", "spark.executor.memory=1g")
        program = start_on((*cluster.options, *options, *NO_FAILURES), tmp_path, started, 600_000)
        executor = cluster.executor_of_a_task_manager()
        # What decommission-worker.sh of Spark's distribution does.
        worker_pid = parent_pid_of(executor.pid)
        took_s = seconds_until_running_again(program, worker_pid, signal.SIGPWR)
        print(f"running again {took_s:.1f} s after SIGPWR to the worker")
        assert_it_was_left_and_ends(program, executor, cluster.executors)
        assert_each_line_once(program, tmp_path)
    finally:
        cluster.end()


def test_a_task_manager_that_gets_sigterm_is_left_after_a_checkpoint(
    tmp_path: Path, started: list[Program]
) -> None:
    program = start(tmp_path, started, 600_000, *NO_FAILURES)
    told = program.task_managers()[0].pid
    took_s = seconds_until_running_again(program, told, signal.SIGTERM)
    print(f"running again {took_s:.1f} s after SIGTERM to the TaskManager")
    wait_until(
        lambda: told not in {one.pid for one in program.task_managers()},
        PATIENCE_S,
        f"the TaskManager is gone\n{program.report()}",
    )
    (notice,) = [line for line in program.err if "restarts now from checkpoint 1" in line]
    assert "is decommissioned: the process that hosts it was told to stop" in notice
    assert_each_line_once(program, tmp_path)


@pytest.mark.long
def test_an_executor_that_gets_sigterm_costs_no_heartbeat_timeout(
    tmp_path: Path, started: list[Program]
) -> None:
    program = start(tmp_path, started, 500)
    wait_until(lambda: len(lines_of_files(tmp_path / "lines")) > 0, PATIENCE_S, "committed lines")
    executor = program.executor_of(program.task_managers()[0])
    took_s = seconds_until_running_again(program, executor.pid, signal.SIGTERM)
    print(f"running again {took_s:.1f} s after SIGTERM")
    assert_each_line_once(program, tmp_path)
