"""TwoInputStreamTask: an input whose data has ended is read on, as barriers still come there."""

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

from headrace.core.elements import StopMode
from headrace.task.input_stream_tasks import TwoInputStreamTask
from headrace.task.stream_task import Progress


class ScriptedInput:
    """A LogicalInput that hands out words; its data has ended with the word `end of data`."""

    is_amid_batch = False

    def __init__(self, *words: str) -> None:
        self.words = deque(words)
        self.taken: list[str] = []
        self.stop_mode = StopMode.DRAIN
        self.waits = False

    @property
    def has_ended(self) -> bool:
        return "end of data" in self.taken

    def process_next(self) -> bool:
        if self.words:
            self.taken.append(self.words.popleft())
            return True
        return False

    def on_available(self, callback: object) -> None:
        self.waits = True


def task_over(first: ScriptedInput, second: ScriptedInput) -> tuple[Any, list[int]]:
    """A task without anything but its two inputs, and the inputs whose ends it told the operator."""
    ended: list[int] = []
    task = cast(Any, object.__new__(TwoInputStreamTask))
    task._inputs = [first, second]
    task._ended = [False, False]
    task._next = 0
    task._mailbox = SimpleNamespace(wake=lambda: None)
    task.chain = SimpleNamespace(end_head_input=ended.append)
    return task, ended


def test_a_barrier_behind_the_end_of_one_inputs_data_is_read_while_the_other_goes_on() -> None:
    first, second = ScriptedInput("end of data", "barrier"), ScriptedInput("rows")
    task, ended = task_over(first, second)
    steps = [task._process_one() for _ in range(4)]
    assert first.taken == ["end of data", "barrier"]
    assert second.taken == ["rows"]
    assert steps == [Progress.MORE, Progress.MORE, Progress.MORE, Progress.NO_INPUT]
    assert ended == [0]


def test_a_task_without_anything_to_read_waits_for_both_inputs_also_for_one_that_ended() -> None:
    first, second = ScriptedInput("end of data"), ScriptedInput()
    task, _ = task_over(first, second)
    assert [task._process_one(), task._process_one()] == [Progress.MORE, Progress.NO_INPUT]
    assert first.waits and second.waits


def test_the_task_is_finished_when_the_data_of_both_has_ended() -> None:
    task, ended = task_over(ScriptedInput("end of data"), ScriptedInput("end of data"))
    assert [task._process_one(), task._process_one()] == [Progress.MORE, Progress.FINISHED]
    assert sorted(ended) == [0, 1]
