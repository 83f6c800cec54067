"""A record on which a function always fails: restarts that mend nothing have an end where the program asks for it."""

from typing import Any

import pytest

from headrace import Types
from headrace.core.errors import JobExecutionError
from headrace.datastream import StreamExecutionEnvironment
from headrace.testing.minicluster_executor import MiniClusterExecutor

pytestmark = pytest.mark.integration

SEEN: list[int] = []
LONG: Any = Types.LONG()


def fail_at_three(number: int) -> int:
    SEEN.append(number)
    if number == 3:
        raise ValueError("three is poison")
    return number


def test_a_record_that_fails_every_time_ends_its_job_after_as_many_restarts_as_are_wanted() -> None:
    SEEN.clear()
    settings = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "0 ms",
        "headrace.restart.same-error-restarts": "2",
    }
    with MiniClusterExecutor(slot_count=1):
        env = StreamExecutionEnvironment.get_execution_environment(settings).set_parallelism(1)
        env.from_collection([1, 3, 5], LONG).map(fail_at_three, output_type=LONG).print()
        with pytest.raises(JobExecutionError, match="three is poison") as failed:
            env.execute("poisoned")
    assert SEEN.count(3) == 3
    assert "the same error as before each of the last 2 restarts" in str(failed.value)
