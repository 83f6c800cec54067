"""pytest plugin with fixtures for tests of programs: a cluster in the test's process, and harnesses of operators.

Load it by `pytest_plugins = ["headrace.testing.fixtures"]` in the outermost `conftest.py`, or by
`pytest -p headrace.testing.fixtures`. It needs pytest, which Headrace itself does not.
"""

from collections.abc import Callable, Iterator, Mapping

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.testing.minicluster_executor import MiniClusterExecutor
from headrace.testing.operator_harness import OperatorHarness


@pytest.fixture
def minicluster_settings() -> Mapping[str, str]:
    """Return the settings of the cluster of `minicluster_environment`: none, unless a fixture overrides it."""
    return {}


@pytest.fixture
def minicluster_environment(
    minicluster_settings: Mapping[str, str],
) -> Iterator[StreamExecutionEnvironment]:
    """Yield an environment whose jobs run on a cluster of two slots in this process, which ends with the test."""
    with MiniClusterExecutor(slot_count=2, settings=minicluster_settings):
        yield StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture
def operator_harness() -> Iterator[Callable[..., OperatorHarness]]:
    """Yield a function that makes harnesses like `OperatorHarness.of_program(environment, name)`.

    They are closed at the end.
    """
    made: list[OperatorHarness] = []

    def make(environment: StreamExecutionEnvironment, operator_name: str) -> OperatorHarness:
        made.append(OperatorHarness.of_program(environment, operator_name))
        return made[-1]

    yield make
    for harness in made:
        harness.close()
