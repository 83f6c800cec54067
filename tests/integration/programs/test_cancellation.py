"""Cancelling a job whose function does not return, from the client to the TaskManager that would end its process."""

import logging
import threading

import pytest

from headrace import Types
from headrace.core.errors import JobCancelledError
from headrace.datastream import StreamExecutionEnvironment
from headrace.testing.minicluster_executor import MiniClusterExecutor

pytestmark = pytest.mark.integration

STARTED, MAY_RETURN = threading.Event(), threading.Event()


def hold(number: int) -> int:
    STARTED.set()
    assert MAY_RETURN.wait(30)
    return number


def test_a_job_that_is_cancelled_at_once_ends_the_process_of_a_function_that_does_not_return(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with MiniClusterExecutor(slot_count=1):
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        env.from_collection([1], Types.LONG()).map(hold, output_type=Types.LONG()).print()
        client = env.execute_async("held")
        assert STARTED.wait(30)
        client.cancel().result(10)
        # A busy machine may have had warnings to give before.
        caplog.clear()
        with caplog.at_level(logging.CRITICAL):
            client.cancel_at_once().result(10)
            while not caplog.messages:
                # The TaskManager is told by a message of its own; any answer comes after some of its steps.
                client.get_job_details().result(10)
        MAY_RETURN.set()
        with pytest.raises(JobCancelledError):
            client.get_job_execution_result().result(30)
    assert "did not return, although its job must end at once" in caplog.messages[0]
