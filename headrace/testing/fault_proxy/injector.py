"""FaultInjector: both directions of one connection, bytes in and actions out. Sockets and simulations drive it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from headrace.testing.fault_proxy.lane import CutConnection, FaultApplied, FaultLane, ProxyAction
from headrace.testing.fault_proxy.rules import Direction, FaultRule


class FaultInjector:
    """Perform the actions in order, and call `time_passed` at `next_due_ns`.

    Which rules meet a frame depends on the seed and on the frames before it in its direction, on nothing else.
    """

    def __init__(self, rules: Sequence[FaultRule], seed: str) -> None:
        self.lanes: Final = {
            direction: FaultLane(direction, rules, seed) for direction in Direction
        }
        self.fault_counts: Final[Counter[str]] = Counter()
        self.is_cut = False

    @property
    def next_due_ns(self) -> int | None:
        """Time at which held data next passes by itself, in ns, or None if none will."""
        due_ns = min(lane.next_due_ns for lane in self.lanes.values())
        return None if self.is_cut or due_ns == math.inf else math.ceil(due_ns)

    @property
    def held_bytes(self) -> int:
        """Bytes that were received and have not passed yet."""
        return sum(lane.held_bytes for lane in self.lanes.values())

    def received(self, direction: Direction, data: bytes, now_ns: int) -> list[ProxyAction]:
        """Take bytes that go in `direction`. ProtocolError where they are no frames; of no use afterwards."""
        return self._step(lambda: self.lanes[direction].received(data, now_ns), now_ns)

    def ended(self, direction: Direction, now_ns: int) -> list[ProxyAction]:
        """The sender of `direction` has ended its stream."""
        return self._step(lambda: self.lanes[direction].ended(now_ns), now_ns)

    def time_passed(self, now_ns: int) -> list[ProxyAction]:
        """Return what passes by now."""
        return self._step(lambda: None, now_ns)

    def _step(self, event: Callable[[], None], now_ns: int) -> list[ProxyAction]:
        if self.is_cut:
            return []
        event()
        actions: list[ProxyAction] = []
        for lane in self.lanes.values():
            actions += lane.take(now_ns)
        for index, action in enumerate(actions):
            if isinstance(action, FaultApplied):
                self.fault_counts[action.rule.word] += 1
            elif isinstance(action, CutConnection):
                self.is_cut = True
                return actions[: index + 1]
        return actions
