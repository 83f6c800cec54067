"""WatermarkValve: decides when event time advances on an input that is read over several channels.

Pure. Source: Flink StatusWatermarkValve; runtime semantics as in "State and time", the valve.
"""

from dataclasses import dataclass

from headrace.core.elements import MIN_TIMESTAMP


@dataclass(frozen=True)
class EmitWatermark:
    """The input's watermark is now `timestamp_ms`."""

    timestamp_ms: int


@dataclass(frozen=True)
class EmitStatus:
    """The input became idle or active."""

    is_idle: bool


ValveAction = EmitWatermark | EmitStatus


class _Channel:
    __slots__ = ("is_active", "is_aligned", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_TIMESTAMP
        self.is_active = True
        self.is_aligned = True


class WatermarkValve:
    """Combines the watermarks of channels to their minimum over aligned channels, which never decreases.

    An idle channel no longer holds back the minimum; one that becomes active again is aligned once it has caught
    up with the emitted watermark.
    """

    def __init__(self, channel_count: int) -> None:
        assert channel_count >= 1
        self._channels = [_Channel() for _ in range(channel_count)]
        self.last_watermark = MIN_TIMESTAMP
        self.is_idle = False

    def restore(self, timestamp_ms: int) -> None:
        """Restore the watermark of a checkpoint; no smaller one is emitted."""
        self.last_watermark = max(self.last_watermark, timestamp_ms)

    def watermark_received(self, channel_index: int, timestamp_ms: int) -> list[ValveAction]:
        """Process a watermark of a channel and return the resulting actions."""
        channel = self._channels[channel_index]
        if self.is_idle or not channel.is_active or timestamp_ms <= channel.watermark:
            return []
        channel.watermark = timestamp_ms
        if not channel.is_aligned and timestamp_ms >= self.last_watermark:
            channel.is_aligned = True
        return self._advance()

    def status_received(self, channel_index: int, is_idle: bool) -> list[ValveAction]:
        """Process a change of a channel's idleness and return the resulting actions."""
        channel = self._channels[channel_index]
        if is_idle:
            return self._channel_idle(channel)
        return self._channel_active(channel)

    def _advance(self) -> list[ValveAction]:
        aligned = [channel.watermark for channel in self._channels if channel.is_aligned]
        if not aligned:
            return []
        return self._emit(min(aligned))

    def _emit(self, timestamp_ms: int) -> list[ValveAction]:
        if timestamp_ms <= self.last_watermark:
            return []
        self.last_watermark = timestamp_ms
        return [EmitWatermark(timestamp_ms)]

    def _channel_idle(self, channel: _Channel) -> list[ValveAction]:
        if not channel.is_active:
            return []
        channel.is_active = False
        channel.is_aligned = False
        held_the_output = channel.watermark == self.last_watermark
        if any(other.is_active for other in self._channels):
            return self._advance() if held_the_output else []
        actions: list[ValveAction] = []
        if held_the_output:
            # No channel holds event time back: advance to the watermark of the furthest channel.
            actions += self._emit(max(other.watermark for other in self._channels))
        self.is_idle = True
        return [*actions, EmitStatus(is_idle=True)]

    def _channel_active(self, channel: _Channel) -> list[ValveAction]:
        if channel.is_active:
            return []
        channel.is_active = True
        channel.is_aligned = channel.watermark >= self.last_watermark
        if self.is_idle:
            self.is_idle = False
            return [EmitStatus(is_idle=False)]
        return []


class CombinedWatermark:
    """Minimum of the watermarks of inputs that are not idle; it never decreases.

    Source: Flink CombinedWatermarkStatus.
    """

    def __init__(self, input_count: int) -> None:
        self._watermarks = [MIN_TIMESTAMP] * input_count
        self._idle = [False] * input_count
        self.watermark = MIN_TIMESTAMP
        self.is_idle = False

    def restore(self, timestamp_ms: int) -> None:
        """Restore the watermark of a checkpoint; no smaller one is emitted."""
        self.watermark = max(self.watermark, timestamp_ms)

    def watermark_received(self, input_number: int, timestamp_ms: int) -> list[ValveAction]:
        """Process a watermark of an input and return the resulting actions."""
        self._watermarks[input_number] = max(self._watermarks[input_number], timestamp_ms)
        actions = self.status_received(input_number, is_idle=False)
        return actions or self._advance()

    def status_received(self, input_number: int, is_idle: bool) -> list[ValveAction]:
        """Process a change of an input's idleness and return the resulting actions."""
        if self._idle[input_number] == is_idle:
            return []
        self._idle[input_number] = is_idle
        actions: list[ValveAction] = []
        all_idle = all(self._idle)
        if all_idle != self.is_idle:
            self.is_idle = all_idle
            actions.append(EmitStatus(all_idle))
        return [*actions, *self._advance()]

    def _advance(self) -> list[ValveAction]:
        active = [w for w, idle in zip(self._watermarks, self._idle, strict=True) if not idle]
        if not active or min(active) <= self.watermark:
            return []
        self.watermark = min(active)
        return [EmitWatermark(self.watermark)]
