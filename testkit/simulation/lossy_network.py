"""A network that loses, delays, reorders and doubles messages, all drawn from one seed: a policy for LoopbackNetwork.

Faults are set per link (source, target) or for all links; partitions cut named services off from each other, in both
directions or one. A real TCP connection does not lose single messages; a dropped connection does, and so does a
process that dies between receiving and acting: loss simulates both.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.clock import Clock
from headrace.core.randomness import SeededRandom
from headrace.rpc.loopback import LoopbackMessage

_GAP_NS: Final = 1000
"""Distance in ns between two messages of one link, as closer timers may change places by rounding."""


@dataclass(frozen=True)
class LinkFaults:
    """Faults of a link. Probabilities lie in [0, 1]; delays, in ms, are uniform between minimum and maximum."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay_min_ms: float = 0.0
    delay_max_ms: float = 0.0

    def __post_init__(self) -> None:
        assert 0 <= self.loss <= 1 and 0 <= self.duplication <= 1 and 0 <= self.reordering <= 1
        assert 0 <= self.delay_min_ms <= self.delay_max_ms


@dataclass(frozen=True)
class _Cut:
    sources: frozenset[str]
    targets: frozenset[str]

    def separates(self, source: str, target: str) -> bool:
        return source in self.sources and target in self.targets


class LossyNetwork:
    """A DeliveryPolicy. Messages of a link keep their order, except those that `reordering` lets overtake.

    Pass it to a network with `network.policy = LossyNetwork(clock, random)`, or as the constructor's `policy`.
    To kill a service, use the network itself: `LoopbackNetwork.kill`.
    """

    def __init__(
        self, clock: Clock, random: SeededRandom, faults: LinkFaults | None = None
    ) -> None:
        self._clock = clock
        self._random = random
        self._faults = faults or LinkFaults()
        self._link_faults: dict[tuple[str, str], LinkFaults] = {}
        self._cuts: list[_Cut] = []
        self._last_arrival_ns: dict[tuple[str, str], int] = {}
        self.lost_count = 0
        self.delivered_count = 0

    def set_faults(self, faults: LinkFaults) -> None:
        """Set the faults of every link that has none of its own."""
        self._faults = faults

    def set_link_faults(self, source: str, target: str, faults: LinkFaults | None) -> None:
        """Set the faults of one direction of a link; None: those of all links."""
        if faults is None:
            self._link_faults.pop((source, target), None)
        else:
            self._link_faults[source, target] = faults

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut the services of each group off from those of every other, both ways, until `heal`."""
        sets = [frozenset(group) for group in groups]
        for sources in sets:
            for targets in sets:
                if sources is not targets:
                    self._cuts.append(_Cut(sources, targets))

    def cut(self, source: str, target: str) -> None:
        """Lose messages from `source` to `target`, one way only, until `heal`."""
        self._cuts.append(_Cut(frozenset({source}), frozenset({target})))

    def heal(self) -> None:
        """End all partitions and cuts. Link faults stay."""
        self._cuts.clear()

    def decide(self, message: LoopbackMessage) -> Sequence[float]:
        """Return the delays of the copies that arrive."""
        link = (message.source, message.target)
        faults = self._link_faults.get(link, self._faults)
        # Always the same number of draws, so that switching one fault on does not reshuffle all others.
        is_lost = self._random.random() < faults.loss
        is_doubled = self._random.random() < faults.duplication
        overtakes = self._random.random() < faults.reordering
        delays = [self._random.uniform(faults.delay_min_ms, faults.delay_max_ms) for _ in range(2)]
        if is_lost or any(cut.separates(*link) for cut in self._cuts):
            self.lost_count += 1
            return ()
        self.delivered_count += 1
        first_ms = delays[0] if overtakes else self._in_order(link, delays[0])
        return (first_ms, first_ms + delays[1]) if is_doubled else (first_ms,)

    def _in_order(self, link: tuple[str, str], delay_ms: float) -> float:
        now_ns = self._clock.monotonic_ns()
        earliest_ns = self._last_arrival_ns.get(link, now_ns - _GAP_NS) + _GAP_NS
        arrival_ns = max(now_ns + round(delay_ms * 1_000_000), earliest_ns)
        self._last_arrival_ns[link] = arrival_ns
        return (arrival_ns - now_ns) / 1_000_000
