"""InputTurns: which of two inputs is read next, and when the data of both has ended.

Source: Flink StreamMultipleInputProcessor, MultipleInputSelectionHandler.
"""

from collections.abc import Callable
from typing import Final, Protocol

from headrace.core.elements import StopMode
from headrace.task.stream_task import Progress


class InputInTurn(Protocol):
    """What the turns need of an input; see input_processor.LogicalInput."""

    @property
    def stop_mode(self) -> StopMode:
        """How its data ended, once it has."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether all of its data was taken."""
        ...

    def process_next(self) -> bool:
        """Take one element; False if there is none."""
        ...

    def on_available(self, callback: Callable[[], None], /) -> None:
        """Have `callback` called, from any thread, once there is something."""
        ...


class InputTurns:
    """Reads two inputs by turns, one element at a time, and whichever has something while the other has nothing.

    `end_input` is told the number of each input that was drained, once; `wake` is called, from any thread, once there
    is something again after NO_INPUT. Mailbox thread only.
    """

    def __init__(
        self,
        inputs: tuple[InputInTurn, InputInTurn],
        end_input: Callable[[int], None],
        wake: Callable[[], None],
    ) -> None:
        self._inputs: Final = inputs
        self._end_input: Final = end_input
        self._wake: Final = wake
        self._ended: Final = [False, False]
        self._next = 0

    def step(self) -> Progress:
        """Take one element. FINISHED: it was the end of the data of both, or came behind that."""
        for number in (self._next, 1 - self._next):
            current = self._inputs[number]
            # Also of an input whose data has ended: barriers still come there, and the other one waits for them.
            if current.process_next():
                self._next = 1 - number
                if current.has_ended and not self._ended[number]:
                    self._ended[number] = True
                    if current.stop_mode is StopMode.DRAIN:
                        self._end_input(number)
                return Progress.FINISHED if all(self._ended) else Progress.MORE
        for current in self._inputs:
            current.on_available(self._wake)
        return Progress.NO_INPUT
