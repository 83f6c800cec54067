"""InputTurns: an input whose data has ended is read on, as barriers still come there."""

from collections import deque
from typing import Any, cast

from headrace.core.elements import StopMode
from headrace.task.input_stream_tasks import InputTurns
from headrace.task.stream_task import Progress


class ScriptedInput:
    """A LogicalInput that hands out words; its data has ended with the word `end of data`."""

    def __init__(self, *words: str, stop_mode: StopMode = StopMode.DRAIN) -> None:
        self.words = deque(words)
        self.taken: list[str] = []
        self.stop_mode = stop_mode
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


def turns_over(first: ScriptedInput, second: ScriptedInput) -> tuple[InputTurns, list[int]]:
    """Turns of two inputs, and the inputs whose ends were told the operator."""
    ended: list[int] = []
    return InputTurns(cast(Any, (first, second)), ended.append, lambda: None), ended


def test_inputs_are_read_by_turns_and_one_goes_on_where_the_other_has_nothing() -> None:
    first, second = ScriptedInput("a", "b", "c"), ScriptedInput("d")
    turns, _ = turns_over(first, second)
    assert [turns.step(), turns.step()] == [Progress.MORE, Progress.MORE]
    assert (first.taken, second.taken) == (["a"], ["d"])
    assert [turns.step(), turns.step()] == [Progress.MORE, Progress.MORE]
    assert (first.taken, second.taken) == (["a", "b", "c"], ["d"])


def test_a_barrier_behind_the_end_of_one_inputs_data_is_read_while_the_other_goes_on() -> None:
    first, second = ScriptedInput("end of data", "barrier"), ScriptedInput("rows")
    turns, ended = turns_over(first, second)
    steps = [turns.step() for _ in range(4)]
    assert first.taken == ["end of data", "barrier"]
    assert second.taken == ["rows"]
    assert steps == [Progress.MORE, Progress.MORE, Progress.MORE, Progress.NO_INPUT]
    assert ended == [0]


def test_a_task_without_anything_to_read_waits_for_both_inputs_also_for_one_that_ended() -> None:
    first, second = ScriptedInput("end of data"), ScriptedInput()
    turns, _ = turns_over(first, second)
    assert [turns.step(), turns.step()] == [Progress.MORE, Progress.NO_INPUT]
    assert first.waits and second.waits


def test_the_task_is_finished_when_the_data_of_both_has_ended() -> None:
    turns, ended = turns_over(ScriptedInput("end of data"), ScriptedInput("end of data"))
    assert [turns.step(), turns.step()] == [Progress.MORE, Progress.FINISHED]
    assert sorted(ended) == [0, 1]


def test_the_operator_hears_nothing_of_an_input_that_was_stopped_without_draining_it() -> None:
    stopped = ScriptedInput("end of data", stop_mode=StopMode.NO_DRAIN)
    turns, ended = turns_over(stopped, ScriptedInput("end of data"))
    assert [turns.step(), turns.step()] == [Progress.MORE, Progress.FINISHED]
    assert ended == [1]
