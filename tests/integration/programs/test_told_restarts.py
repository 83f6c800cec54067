"""Whatever goes wrong in a job that takes checkpoints is told at each restart, and not tried for ever."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.common import Configuration, Encoder
from headrace.core.errors import JobExecutionError
from headrace.core.lifecycle import JobStatus
from headrace.datastream import DataStream
from headrace.datastream.connectors.file_system import FileSink
from headrace.gateways.job_master import JobDetails
from testkit.faulty_file_system import faults_of
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_details

pytestmark = pytest.mark.integration

WAIT_S = 60
OPTIONS = {
    "execution.checkpointing.interval": "20 ms",
    "restart-strategy.exponential-delay.initial-backoff": "10 ms",
}
POISON = 150
FORBIDDEN = "/sys/headrace-lines"
"""Nobody may make this folder, not even root."""


class Job:
    """Numbers up to a gate's limit."""

    def __init__(self, env: StreamExecutionEnvironment, name: str) -> None:
        self.gate = GATES[name] = Gate(POISON // 2)
        self._env = env
        self._name = name

    def numbers(
        self, options: dict[str, str] | None = None, count: int | None = None
    ) -> DataStream:
        configuration = Configuration()
        for key, value in (OPTIONS | (options or {})).items():
            configuration.set_string(key, value)
        self._env.configure(configuration)
        self._env.set_parallelism(1)
        source = GatedSource(self._name, count)
        return self._env.from_source(
            source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
        )

    def start(self) -> JobClient:
        return self._env.execute_async("told")


@pytest.fixture
def job(env: StreamExecutionEnvironment, request: pytest.FixtureRequest) -> Job:
    return Job(env, request.node.name)


def end_of(client: JobClient) -> tuple[str, list[str]]:
    """The first line of the error with which the job ended, and what its user was told before."""
    with pytest.raises(JobExecutionError) as failed:
        client.get_job_execution_result().result(WAIT_S)
    return str(failed.value).partition("\n")[0], told(client)


def told(client: JobClient) -> list[str]:
    details: JobDetails = client.get_job_details().result(WAIT_S)
    return [notice.text for notice in details.notices]


def line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno + 1


def test_a_bug_in_a_function_is_told_twice_and_ends_the_job_the_third_time(job: Job) -> None:
    def broken(number: int) -> Any:
        return number.missing  # pyright: ignore[reportAttributeAccessIssue]

    job.numbers().map(broken, output_type=Types.LONG()).print()
    first, notices = end_of(job.start())
    cause = "AttributeError: 'int' object has no attribute 'missing' (in operator 'Map'"
    place = f"{__file__}, line {line_of(broken)})"
    assert first.startswith(cause) and place in first
    assert "the same error 3 times without progress" in first
    assert len(notices) == 2
    for number, notice in enumerate(notices, 1):
        assert notice.startswith("job 'told' restarts in 0.0 s from ")
        assert f" (restart {number}): {cause}" in notice and notice.endswith(place)


def test_a_poison_record_behind_checkpoints_is_told_with_the_checkpoint_and_ends_the_job(
    job: Job,
) -> None:
    def poisoned(number: int) -> int:
        if number == POISON:
            raise ValueError(f"{number} is poison")
        return number

    job.numbers().map(poisoned, output_type=Types.LONG()).print()
    client = job.start()
    await_details(client, lambda details: details.checkpoints.counts.completed > 1)
    job.gate.open_to(10 * POISON)
    first, notices = end_of(client)
    assert first.startswith("ValueError: 150 is poison (in operator 'Map'")
    # The first one may have come before a checkpoint that is nearer to the record.
    assert 2 <= len(notices) <= 3
    assert all(" from checkpoint " in one and "150 is poison" in one for one in notices)


def test_a_sink_that_may_not_write_where_it_is_to_is_told_and_ends_the_job(job: Job) -> None:
    sink = FileSink.for_row_format(FORBIDDEN, Encoder.simple_string_encoder()).build()
    lines = job.numbers().map(str, output_type=Types.STRING())
    lines.sink_to(sink).name("lines")
    first, notices = end_of(job.start())
    assert FORBIDDEN in first and "not permitted" in first and "lines" in first
    assert notices and all(FORBIDDEN in notice for notice in notices)


def test_a_full_disk_of_checkpoints_is_told_with_its_remedy_and_ends_the_job(
    job: Job, tmp_path: Path
) -> None:
    query = f"run={tmp_path.name}"
    job.numbers(
        {
            "execution.checkpointing.dir": f"faulty://{tmp_path}/checkpoints?{query}",
            "headrace.checkpoint.key-file": str(tmp_path / "key"),
        }
    ).print()
    client = job.start()
    await_details(client, lambda details: details.checkpoints.counts.completed > 0)
    faults_of(query).full_after = 0
    first, notices = end_of(client)
    assert "the same error 3 times without progress" in first
    assert len(notices) == 2
    for line in (first, *notices):
        assert "No space left on device; free space there, or set execution.checkpointing" in line
    assert all(" from checkpoint " in notice for notice in notices)


def test_checkpoints_that_fail_while_the_job_goes_on_are_told_too(job: Job, tmp_path: Path) -> None:
    query = f"run={tmp_path.name}"
    job.numbers(
        {
            "execution.checkpointing.dir": f"faulty://{tmp_path}/checkpoints?{query}",
            "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
            "headrace.checkpoint.key-file": str(tmp_path / "key"),
        }
    ).print()
    client = job.start()
    await_details(client, lambda details: details.checkpoints.counts.completed > 0)
    faults_of(query).full_after = 0
    details = await_details(client, lambda details: len(details.notices) > 0)
    assert details.status is JobStatus.RUNNING
    line = details.notices[0].text
    assert line.startswith("a checkpoint of job 'told' failed, but the job goes on: ")
    assert "No space left on device; free space there" in line


def test_a_service_that_does_not_answer_is_waited_for_and_every_restart_is_told(
    job: Job, tmp_path: Path
) -> None:
    outages = tmp_path / "outages"
    outages.touch()

    def ask(number: int) -> int:
        if number == 5 and outages.stat().st_size < 5:
            with outages.open("a") as file:
                file.write(".")
            raise ConnectionRefusedError("the service is down")
        return number

    job.numbers({"execution.checkpointing.interval": "1 h"}, count=50).map(ask).print()
    client = job.start()
    client.get_job_execution_result().result(WAIT_S)
    notices = told(client)
    # Those that came fast stand in one line.
    assert len(notices) == 4 and notices[-1].endswith("(1 similar ones before it)")
    assert all("ConnectionRefusedError: the service is down" in notice for notice in notices)


def test_an_error_that_says_that_no_restart_mends_it_is_final_at_once(job: Job) -> None:
    class WrongPasswordError(Exception):
        recoverable = False

    def log_in(number: int) -> int:
        raise WrongPasswordError("who are you?")

    job.numbers().map(log_in).print()
    first, notices = end_of(job.start())
    assert first.startswith("WrongPasswordError: who are you? (in operator 'Map'")
    assert notices == []
