from collections.abc import Iterator

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from tests.unit.api.recording import RecordingExecutor, recording


@pytest.fixture
def executor() -> Iterator[RecordingExecutor]:
    with recording() as one:
        yield one


@pytest.fixture
def env(executor: RecordingExecutor) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
