"""The pytest plugin, used as a project of its own uses it."""

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.integration

PROGRAM = """
import pytest

from headrace.common import Types
from headrace.datastream import KeyedProcessFunction
from headrace.datastream.state import ValueStateDescriptor
from headrace.testing.operator_harness import Rows
from headrace.testing.operator_ways import run_all_ways


class Count(KeyedProcessFunction):
    closed_count = 0

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield f"{ctx.get_current_key()} {self.count.value()}"

    def close(self):
        Count.closed_count += 1


def counts(env, key):
    rows = env.from_collection([("a", 1), ("b", 2), ("a", 3)], ROWS)
    return rows.key_by(key).process(Count(), Types.STRING()).name("count")


ROWS = Types.ROW_NAMED(["name", "number"], [Types.STRING(), Types.LONG()])
"""


def outcomes(pytester: pytest.Pytester, tests: str) -> dict[str, int]:
    pytester.makeconftest('pytest_plugins = ["headrace.testing.fixtures"]')
    pytester.makepyfile(PROGRAM + tests)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider").parseoutcomes()


def test_a_program_runs_on_a_cluster_that_ends_with_the_test(pytester: pytest.Pytester) -> None:
    tests = """
@pytest.fixture
def minicluster_settings():
    return {"execution.checkpointing.interval": "1 s"}


def test_counts(minicluster_environment):
    with counts(minicluster_environment, lambda row: row["name"]).execute_and_collect() as found:
        assert sorted(found) == ["a 1", "a 2", "b 1"]


def test_there_is_no_cluster_any_more():
    from headrace.api import executors

    assert executors.active_executor() is None
"""
    assert outcomes(pytester, tests) == {"passed": 2}


def test_a_harness_has_the_types_and_keys_of_the_program_and_is_closed(
    pytester: pytest.Pytester,
) -> None:
    tests = """
from headrace import Row, StreamExecutionEnvironment

row = Row("name", "number")


@pytest.mark.parametrize("key", [lambda row: row["name"], "name"])
def test_counts(operator_harness, key):
    env = StreamExecutionEnvironment.get_execution_environment()
    counts(env, key).print()
    steps = [Rows([row("a", 1), row("b", 2)]), Rows([row("a", 3)])]
    harness = run_all_ways(lambda: operator_harness(env, "count"), steps)
    assert harness.output.rows == ["a 1", "b 1", "a 2"]
    with pytest.raises(LookupError, match="0 operators 'total' among .*'count'"):
        operator_harness(env, "total")


def test_each_is_closed_once(operator_harness):
    env = StreamExecutionEnvironment.get_execution_environment()
    counts(env, lambda row: row["name"]).print()
    operator_harness(env, "count")
    finished = operator_harness(env, "count")
    Count.closed_count = 0
    finished.finish()


def test_none_is_left_open():
    assert Count.closed_count == 2
"""
    assert outcomes(pytester, tests) == {"passed": 4}
