"""UpstreamRecovery: which channels of a gate have delivered all that their senders had to send again. Pure.

    sender     restored rows, EndOfOutputChannelState │ blocked │ what is new
    gate       … until every channel has delivered the event: then all of them are resumed

Rows that one sender had sent before a checkpoint may be followed by rows of another one, which took over after a
rescaling: so nothing new is read of any channel before all that was restored. Source: Flink UpstreamRecoveryTracker.
"""

from collections.abc import Sequence


class UpstreamRecovery:
    """Of one gate with `channel_count` channels."""

    def __init__(self, channel_count: int) -> None:
        self._channel_count = channel_count
        self._recovered: set[int] = set()

    def recovered(self, channel: int) -> Sequence[int]:
        """A channel has delivered its EndOfOutputChannelState, once; return the channels to be resumed now."""
        assert channel not in self._recovered, f"channel {channel} recovered twice"
        self._recovered.add(channel)
        return range(self._channel_count) if len(self._recovered) == self._channel_count else ()
