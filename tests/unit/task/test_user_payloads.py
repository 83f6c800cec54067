"""Loading of user code: where and how often it is unpickled, and what a task does until it has it."""

import threading

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.errors import UserCodeError
from headrace.core.lifecycle import ExecutionState
from headrace.core.types.type_info import Types
from tests.unit.task.local_job import LocalJob

LOADED: list[tuple[str, str]] = []


def noting(name: str):
    """A function that notes on which thread it is unpickled."""
    return Noting(name)


class Noting:
    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self):
        return _unpickled, (self.name,)

    def __call__(self, value, *channel_count):
        return 0 if channel_count else value


class Broken:
    def __reduce__(self):
        return _broken, ()

    def __call__(self, key, channel_count):
        return 0


def _unpickled(name: str) -> Noting:
    LOADED.append((name, threading.current_thread().name))
    return Noting(name)


def _broken() -> Broken:
    raise ModuleNotFoundError("No module named 'mine'")


def environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    return env


def test_functions_and_partitioners_are_unpickled_once_and_by_their_own_task() -> None:
    env = environment()
    numbers = env.from_collection([1, 2, 3], Types.INT())
    mapped = numbers.map(noting("map"), output_type=Types.INT())
    parted = mapped.partition_custom(noting("partitioner"), noting("key"))
    parted.map(noting("second"), output_type=Types.INT()).print()
    job = LocalJob(env.get_stream_graph())
    LOADED.clear()
    with job:
        assert LOADED == [], "building the tasks loads nothing"
        job.run()
    assert sorted(name for name, _ in LOADED) == ["key", "map", "partitioner", "second"]
    threads = dict(LOADED)
    assert threading.current_thread().name not in threads.values()
    assert threads["map"] == threads["partitioner"] == threads["key"] != threads["second"]


def test_a_partitioner_that_cannot_be_loaded_fails_its_task_with_what_to_do() -> None:
    env = environment()
    numbers = env.from_collection([1, 2, 3], Types.INT())
    numbers.partition_custom(Broken(), lambda x: x).print()
    with LocalJob(env.get_stream_graph()) as job:
        job.start()
        job.listener.await_end(len(job.tasks))
        causes = [error for error in job.listener.errors if isinstance(error, UserCodeError)]
    assert "the partitioner cannot be loaded on the worker" in str(causes[0])
    assert "--python-files" in str(causes[0])


class Waiting:
    """A one-task job whose payloads have not come."""

    def __init__(self) -> None:
        env = environment()
        env.from_collection([1, 2, 3], Types.INT()).print()
        self.job = LocalJob(env.get_stream_graph(), are_payloads_apart=True)
        (self.task,) = self.job.tasks
        self.payloads = self.job.payloads_of(0)

    def __enter__(self) -> "Waiting":
        self.job.__enter__()
        self.task.start()
        self.job.listener.await_state(ExecutionState.DEPLOYING)
        return self

    def __exit__(self, *_: object) -> None:
        self.job.__exit__()


def test_a_task_waits_for_its_payloads_and_then_runs() -> None:
    with Waiting() as waiting:
        waiting.task.deliver_payloads(waiting.payloads)
        waiting.job.listener.await_end(1)
    assert waiting.job.final_states() == {ExecutionState.FINISHED}
    assert waiting.task._payloads is None, "what was loaded is let go of"


def test_a_task_that_waits_for_its_payloads_can_be_cancelled() -> None:
    with Waiting() as waiting:
        waiting.task.cancel()
        waiting.job.listener.await_end(1)
        waiting.task.deliver_payloads(waiting.payloads)
    assert waiting.job.final_states() == {ExecutionState.CANCELED}


def test_a_task_whose_payloads_cannot_be_had_fails_with_the_reason() -> None:
    with Waiting() as waiting:
        waiting.task.fail_externally(OSError("no blob"))
        waiting.job.listener.await_end(1)
    assert waiting.job.final_states() == {ExecutionState.FAILED}
    assert [str(error) for error in waiting.job.listener.errors] == ["no blob"]
