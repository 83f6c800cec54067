"""Delivery of messages and data in a simulated cluster: each message is traced, and connections keep their order."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.core.clock import ManualClock
from headrace.core.randomness import SeededRandom
from headrace.rpc.loopback import DeliveryPolicy, LoopbackMessage


@dataclass
class Trace:
    """Trace of events, line by line; `digest` is the same for the same events in the same order."""

    lines: list[str] = field(default_factory=list[str])

    def add(self, line: str) -> None:
        """Append an event."""
        self.lines.append(line)

    @property
    def digest(self) -> str:
        """Return the hash of all events so far."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


@dataclass(frozen=True)
class TracedDelivery:
    """Records whether and when each message is delivered."""

    policy: DeliveryPolicy
    trace: Trace
    clock: ManualClock

    def decide(self, message: LoopbackMessage) -> Sequence[float]:
        delays_ms = self.policy.decide(message)
        fate = " ".join(f"{delay:.3f}" for delay in delays_ms) or "lost"
        self.trace.add(
            f"{self.clock.monotonic_ns()} {message.source}>{message.target} {message.kind.name} "
            f"{message.method} {message.size_bytes} {fate}"
        )
        return delays_ms


class OrderedDelay:
    """Random delays that keep the order of each direction, as a connection does."""

    def __init__(self, clock: ManualClock, random: SeededRandom, max_ms: float) -> None:
        self._clock = clock
        self._random = random
        self._max_ms = max_ms
        self._last_arrival_ms: dict[tuple[str, str], float] = {}

    def __call__(self, source: str, target: str) -> float:
        monotonic_ms = self._clock.monotonic_ms()
        earliest_ms = self._last_arrival_ms.get((source, target), monotonic_ms)
        arrival_ms = max(monotonic_ms + self._random.uniform(0, self._max_ms), earliest_ms + 0.001)
        self._last_arrival_ms[source, target] = arrival_ms
        return arrival_ms - monotonic_ms
