"""ManualCalls: calls of an asynchronous function that end when the test says so, on the test's own thread."""

from collections.abc import Sequence

from headrace.operators.async_io.async_calls import AsyncCall, CallsEnded


class ManualCalls:
    """Implements AsyncCalls. `running` holds the calls that have started, in order; `finish` ends one of them.

    A coroutine that awaits is resumed at once, so it must not wait for anything but other coroutines.
    """

    def __init__(self, ended: CallsEnded) -> None:
        self._tell_ended = ended
        self.running: list[AsyncCall] = []
        self.started_count = 0
        self.running_max = 0
        self.is_closed = False

    def start(self, calls: Sequence[AsyncCall]) -> None:
        self.running += calls
        self.started_count += len(calls)
        self.running_max = max(self.running_max, len(self.running))

    def cancel(self, call: AsyncCall) -> None:
        call.is_cancelled = True
        if call in self.running:  # else it is done, and its mail on its way
            self.running.remove(call)

    def close(self) -> None:
        self.is_closed = True
        self.running.clear()

    def finish(self, index: int = 0) -> None:
        """Let the call at `index` of `running` run to its end."""
        call = self.running.pop(index)
        coroutine = call.run()
        try:
            while True:
                coroutine.send(None)
        except StopIteration:
            self._tell_ended([call])

    def finish_first(self) -> bool:
        """Let the oldest call end; False where none runs."""
        if self.running:
            self.finish()
            return True
        return False
