"""Programs that go on from a savepoint of an earlier version: what may go, and what is said of state left behind."""

from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.job_client import JobClient
from headrace.api.client.program_end import forget_jobs, left_jobs
from headrace.common import Configuration
from headrace.core.errors import JobCancelledError, JobExecutionError
from headrace.gateways.errors import JobAlreadyEndedError
from tests.integration.programs.gated import GATES, Gate, GatedSource
from tests.integration.programs.job_details import await_begun, await_details, every_task_runs
from tests.integration.programs.recovery_program import PAIR, CountPerKey, has_read

pytestmark = pytest.mark.integration

WAIT_S = 60


class Program:
    """Counts numbers per key; its later versions have other operators, or other uids."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path) -> None:
        self._env = env
        self._folder = folder
        self.gate = GATES[folder.name] = Gate(100)

    def start(
        self,
        settings: dict[str, str] | None = None,
        *,
        count_uid: str = "count",
        doubles: bool = False,
    ) -> JobClient:
        configuration = Configuration()
        configuration.set_string("execution.checkpointing.interval", "1 h")
        for key, value in (settings or {}).items():
            configuration.set_string(f"execution.{key}", value)
        self._env.configure(configuration)
        self._env.set_parallelism(2)
        source = GatedSource(self._folder.name, None)
        strategy = WatermarkStrategy.no_watermarks()
        numbers = self._env.from_source(source, strategy, "numbers", Types.INT()).uid("numbers")
        if doubles:
            numbers = numbers.rebalance().map(lambda number: 2 * number, output_type=Types.INT())
        (
            numbers.key_by(lambda number: number % 3, key_type=Types.INT())
            .process(CountPerKey(str(self._folder / "never"), -1), output_type=PAIR)
            .name("counter")
            .uid(count_uid)
            .filter(lambda pair: False)
            .print()
        )
        return self._env.execute_async("upgraded")

    def savepoint(self, *, doubles: bool = False) -> str:
        client = self.start(doubles=doubles)
        await_begun(client, has_read(100))
        path = client.stop_with_savepoint(False, str(self._folder / "savepoints")).result(WAIT_S)
        client.get_job_execution_result().result(WAIT_S)
        return path


@pytest.fixture
def program(env: StreamExecutionEnvironment, tmp_path: Path) -> Program:
    return Program(env, tmp_path)


def from_savepoint(path: str, *, ignores_unclaimed: bool = False) -> dict[str, str]:
    return {
        "state-recovery.path": path,
        "state-recovery.ignore-unclaimed-state": str(ignores_unclaimed).lower(),
    }


def end(client: JobClient) -> None:
    client.cancel().result(WAIT_S)
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result().result(WAIT_S)


def test_operators_that_keep_nothing_may_go_whether_they_have_a_uid_or_not(
    program: Program,
) -> None:
    client = program.start(from_savepoint(program.savepoint(doubles=True)))
    details = await_details(client, every_task_runs)
    assert details.checkpoints.restored_id and details.notices == ()
    end(client)


def test_state_that_a_mistyped_uid_leaves_behind_is_named_on_the_terminal(program: Program) -> None:
    settings = from_savepoint(program.savepoint(), ignores_unclaimed=True)
    client = program.start(settings, count_uid="cuont")
    (notice,) = await_details(client, every_task_runs).notices
    assert "without the state of 'counter' (uid 'count'): 3 rows, " in notice.text
    assert notice.text.endswith("; 'counter' (uid 'cuont') starts without state")
    end(client)


def test_why_a_job_could_not_be_restored_is_told_whatever_is_asked_of_it_later(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    path = program.savepoint()
    forget_jobs()
    client = program.start(from_savepoint(path), count_uid="cuont")
    details = client.get_job_details().result(WAIT_S)
    while not details.status.is_terminal_state():
        details = client.get_job_details().result(WAIT_S)
    reason = "state of operators that this job does not have: 'counter' (uid 'count')"
    with pytest.raises(JobAlreadyEndedError) as refused:
        client.cancel().result(WAIT_S)
    assert reason in str(refused.value) and "has ended before as FAILED" in str(refused.value)
    (untold,) = left_jobs()
    assert reason in str(untold).partition("\n")[0]
    with pytest.raises(JobExecutionError) as failed:
        client.get_job_execution_result().result(WAIT_S)
    assert reason in str(failed.value).partition("\n")[0]
    # It would be refused from there again.
    assert "continue from it" not in caplog.text
