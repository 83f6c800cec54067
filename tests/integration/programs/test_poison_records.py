"""A record on which a function always fails: restarts that mend nothing have an end where the program asks for it."""

from typing import Any

import pytest

from headrace import OutputTag, Types
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


def test_a_result_of_the_wrong_type_is_set_aside_like_a_record_that_fails() -> None:
    poison = OutputTag("poison", Types.TUPLE([LONG, Types.STRING()]))
    made = {1: 10, 3: "thirty", 5: 50}
    with MiniClusterExecutor(slot_count=1):
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        keyed = env.from_collection([1, 3, 5], LONG).key_by(lambda number: number % 2, LONG)
        mapped = keyed.map(made.get, output_type=LONG).on_failure(poison)
        aside = mapped.get_side_output(poison)
        main = mapped.map(lambda number: (number, "main"), output_type=poison.type_info)
        with main.union(aside).execute_and_collect() as results:
            collected = sorted(results)
    assert [result for result in collected if result[1] == "main"] == [(10, "main"), (50, "main")]
    ((record, error),) = [result for result in collected if result[1] != "main"]
    assert record == 3
    assert error.startswith("RecordTypeError: ") and "thirty" in error


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
    assert "the same error 3 times without progress" in str(failed.value)
