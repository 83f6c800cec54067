import asyncio
from collections.abc import Iterator

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.threads import start_thread
from tests.unit.api.recording import RecordingExecutor, recording


@pytest.fixture
def executor() -> Iterator[RecordingExecutor]:
    with recording() as one:
        yield one


@pytest.fixture
def env(executor: RecordingExecutor) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Of the cluster's control thread, which clients ask."""
    one = asyncio.new_event_loop()
    thread = start_thread("control", one.run_forever)
    yield one
    one.call_soon_threadsafe(one.stop)
    thread.join()
    one.close()
