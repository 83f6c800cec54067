"""UpstreamRecovery: which channels of a task have delivered all that their senders had to send again. Pure.

    sender     restored rows, EndOfOutputChannelState │ blocked │ what is new
    gates      … until every channel of all gates has delivered the event: then all of them are resumed

Rows that one sender had sent before a checkpoint may be followed by rows of another one, which took over after a
rescaling: so nothing new is read of any channel before all that was restored.

Flink has a tracker for each gate. Here there is one for all gates of a task that exchange records without storing them:
else the barrier of the next checkpoint may come on one gate while another one has restored rows still to read. Those
would be stored beside what is new on their gate by the time its barriers come, and change places in the restart after
that. Nobody waits in a circle: senders hand over what they restore before they read, whatever becomes of it.
Source: Flink UpstreamRecoveryTracker.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol


class UpstreamRecovery:
    """Of gates with so many channels each."""

    def __init__(self, channel_counts: Sequence[int]) -> None:
        self._channels = [
            (gate, channel) for gate, count in enumerate(channel_counts) for channel in range(count)
        ]
        self._recovered: set[tuple[int, int]] = set()

    def recovered(self, gate: int, channel: int) -> Sequence[tuple[int, int]]:
        """A channel has delivered its EndOfOutputChannelState, once; return gates and channels to be resumed now."""
        place = (gate, channel)
        assert place not in self._recovered, f"channel {channel} of gate {gate} recovered twice"
        self._recovered.add(place)
        return self._channels if len(self._recovered) == len(self._channels) else ()


class RecoveringGate(Protocol):
    """What is asked of a gate. The task's thread."""

    @property
    def number_of_channels(self) -> int:
        """Channels, open or ended."""
        ...

    def resume(self, channel_index: int) -> None:
        """Have the producer of a channel go on."""
        ...

    def on_recovered(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called with each channel whose sender has sent again all that it had to."""
        ...


def recover_together(gates: Sequence[RecoveringGate]) -> None:
    """Have nothing new read on any of `gates` before all that was restored on all of them. The task's thread."""
    recovery = UpstreamRecovery([gate.number_of_channels for gate in gates])

    def recovered(gate: int, channel: int) -> None:
        for number, index in recovery.recovered(gate, channel):
            gates[number].resume(index)

    for number, gate in enumerate(gates):
        gate.on_recovered(partial(recovered, number))
