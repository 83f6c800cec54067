"""FaultInjector: applies fault rules to both directions of one connection, bytes in and actions out.

A FaultLane is one direction: it decides which rules apply to a frame, and when the rest of the frame is forwarded. Time
is an argument, random numbers come from the seed, and the size of reads does not matter: the same frames at the same
times get the same faults. Sockets (`proxy`) and simulations drive it.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.core.randomness import SeededRandom
from headrace.network.wire.frame_splitter import FrameSplitter, SplitFrame
from headrace.testing.fault_proxy.rules import (
    Coalesce,
    Corrupt,
    Cut,
    Delay,
    Direction,
    Drop,
    Duplicate,
    FaultRule,
    Fragment,
    Reorder,
    Stall,
    Throttle,
)

_NS_PER_S: Final = 1_000_000_000
_THROTTLED_PIECES_PER_S: Final = 100


@dataclass(frozen=True)
class Deliver:
    """Write `data` to the receiver of this direction; in pieces of `piece_bytes`, unless that is 0."""

    direction: Direction
    data: bytes
    piece_bytes: int = 0


@dataclass(frozen=True)
class EndStream:
    """The sender of this direction has ended: forward that."""

    direction: Direction


@dataclass(frozen=True)
class CutConnection:
    """End the connection for both sides at once."""


@dataclass(frozen=True)
class FaultApplied:
    """A rule was applied to a frame; for the log."""

    direction: Direction
    rule: FaultRule
    frame_text: str


ProxyAction = Deliver | EndStream | CutConnection | FaultApplied


@dataclass
class _Plan:
    """Faults to apply to one frame."""

    data: bytes
    is_dropped: bool = False
    copy_count: int = 0
    delay_ns: float = 0
    reorder: Reorder | None = None
    cut_at: int | None = None
    bytes_per_second: int = 0
    piece_bytes: int = 0
    coalesce: Coalesce | None = None


@dataclass
class _Overtaken:
    """A frame that others overtake."""

    plan: _Plan
    missing_count: int
    deadline_ns: float


class _RuleState:
    """A rule with its counters and its random numbers."""

    def __init__(self, rule: FaultRule, random: SeededRandom) -> None:
        self.rule: Final = rule
        self._random = random
        self._fitting_count = 0
        self._applied_count = 0

    def meets(self, direction: Direction, cut: SplitFrame) -> float | None:
        """Return a number in [0, 1) for deciding details if the rule applies to the frame, else None."""
        selector = self.rule.selector
        if not selector.fits(direction, cut):
            return None
        self._fitting_count += 1
        # Always two draws, so that the faults of one frame do not change those of the next.
        chance, detail = self._random.random(), self._random.random()
        if selector.every is not None and self._fitting_count % selector.every:
            return None
        if selector.nth is not None and self._fitting_count != selector.nth:
            return None
        if chance >= selector.probability:
            return None
        if selector.count is not None and self._applied_count >= selector.count:
            return None
        self._applied_count += 1
        return detail


class FaultLane:
    """One direction of a connection, to which received bytes are added.

    `take(now)` returns due actions, `next_due_ns` the time for the next call.
    """

    def __init__(self, direction: Direction, rules: Sequence[FaultRule], seed: str) -> None:
        self.direction: Final = direction
        self.held_bytes = 0
        self.frame_counts: Final[Counter[str]] = Counter()
        self.byte_count = 0
        self._cutter = FrameSplitter(f"the {direction.value} side")
        self._rules = [
            _RuleState(rule, SeededRandom(f"{seed}:{index}:{direction.value}"))
            for index, rule in enumerate(rules)
        ]
        self._queue: deque[tuple[float, ProxyAction]] = deque()  # by time
        self._last_due_ns: float = 0
        self._overtaken: list[_Overtaken] = []
        self._gathered = bytearray()
        self._gathering: tuple[float, int] | None = None  # deadline, size
        self._notices: list[ProxyAction] = []
        self._is_over = False

    @property
    def next_due_ns(self) -> float:
        """Time at which held data is next forwarded, in ns; infinite if there is none."""
        deadlines = [item.deadline_ns for item in self._overtaken]
        if self._queue:
            deadlines.append(self._queue[0][0])
        if self._gathering is not None:
            deadlines.append(self._gathering[0])
        return min(deadlines, default=math.inf)

    def received(self, data: bytes, now_ns: int) -> None:
        """Add bytes of the sender. ProtocolError if they are not frames."""
        if self._is_over:
            return
        self._expire(now_ns)
        for cut in self._cutter.cut(data):
            if self._is_over:
                return
            self.byte_count += len(cut.raw)
            self.frame_counts[type(cut.frame).__name__] += 1
            plan = self._plan(cut)
            if not plan.is_dropped:
                self._place(plan, now_ns)

    def ended(self, now_ns: int) -> None:
        """Record that the sender has ended; held data is forwarded first."""
        if self._is_over:
            return
        for item in self._overtaken:
            item.deadline_ns = min(item.deadline_ns, now_ns)
        self._expire(now_ns)
        self._flush(now_ns)
        rest = self._cutter.rest
        if rest:
            self._enqueue(now_ns, Deliver(self.direction, rest))
        self._enqueue(now_ns, EndStream(self.direction))
        self._is_over = True

    def take(self, now_ns: int) -> list[ProxyAction]:
        """Return the actions that are due now, in order."""
        self._expire(now_ns)
        actions, self._notices = self._notices, []
        while self._queue and self._queue[0][0] <= now_ns:
            action = self._queue.popleft()[1]
            if isinstance(action, Deliver):
                self.held_bytes -= len(action.data)
            actions.append(action)
        return actions

    def _plan(self, cut: SplitFrame) -> _Plan:
        plan = _Plan(cut.raw)
        for state in self._rules:
            detail = state.meets(self.direction, cut)
            if detail is not None:
                self._notices.append(FaultApplied(self.direction, state.rule, describe(cut)))
                _apply(plan, state.rule, cut, detail)
        return plan

    def _place(self, plan: _Plan, now_ns: float) -> None:
        self.held_bytes += len(plan.data)
        if plan.reorder is not None:
            deadline_ns = now_ns + plan.reorder.within_ns
            self._overtaken.append(_Overtaken(plan, plan.reorder.by_count, deadline_ns))
            return
        self._pass(plan, now_ns)
        passed = [item for item in self._overtaken if item.missing_count <= 1]
        self._overtaken = [item for item in self._overtaken if item.missing_count > 1]
        for item in self._overtaken:
            item.missing_count -= 1
        for item in passed:
            self._pass(item.plan, now_ns)

    def _pass(self, plan: _Plan, now_ns: float) -> None:
        """Schedule a frame; its forwarded bytes count as held until then."""
        self.held_bytes -= len(plan.data)
        due_ns = now_ns + plan.delay_ns
        if plan.cut_at is not None:
            self._flush(due_ns)
            if plan.cut_at:
                self._enqueue(due_ns, Deliver(self.direction, plan.data[: plan.cut_at]))
            self._enqueue(due_ns, CutConnection())
            self._is_over = True
            return
        for _ in range(1 + plan.copy_count):
            if plan.coalesce is not None:
                self._gather(plan.data, plan.coalesce, due_ns)
            else:
                self._flush(due_ns)
                self._enqueue_paced(due_ns, plan)

    def _gather(self, data: bytes, coalesce: Coalesce, due_ns: float) -> None:
        if self._gathering is None:
            self._gathering = (due_ns + coalesce.within_ns, coalesce.size_bytes)
        self._gathered += data
        self.held_bytes += len(data)
        if len(self._gathered) >= self._gathering[1]:
            self._flush(due_ns)

    def _flush(self, due_ns: float) -> None:
        """Forward collected frames."""
        if self._gathering is not None:
            data, self._gathering = bytes(self._gathered), None
            self._gathered.clear()
            self.held_bytes -= len(data)
            self._enqueue(due_ns, Deliver(self.direction, data))

    def _enqueue_paced(self, due_ns: float, plan: _Plan) -> None:
        if not plan.bytes_per_second:
            self._enqueue(due_ns, Deliver(self.direction, plan.data, plan.piece_bytes))
            return
        step = max(1, plan.bytes_per_second // _THROTTLED_PIECES_PER_S)
        due_ns = max(due_ns, self._last_due_ns)
        for start in range(0, len(plan.data), step):
            piece = plan.data[start : start + step]
            due_ns += len(piece) * _NS_PER_S / plan.bytes_per_second
            self._enqueue(due_ns, Deliver(self.direction, piece, plan.piece_bytes))

    def _enqueue(self, due_ns: float, action: ProxyAction) -> None:
        # Frames keep their order here: a late frame delays the following ones.
        self._last_due_ns = max(due_ns, self._last_due_ns)
        self._queue.append((self._last_due_ns, action))
        if isinstance(action, Deliver):
            self.held_bytes += len(action.data)

    def _expire(self, now_ns: float) -> None:
        """Forward frames that have waited long enough, each at the time when it was due."""
        while self._overtaken or self._gathering is not None:
            first = min(self._overtaken, key=lambda item: item.deadline_ns, default=None)
            deadline_ns = math.inf if first is None else first.deadline_ns
            if self._gathering is not None and self._gathering[0] <= min(deadline_ns, now_ns):
                self._flush(self._gathering[0])
            elif first is not None and deadline_ns <= now_ns:
                self._overtaken.remove(first)
                self._pass(first.plan, deadline_ns)
            else:
                return


def describe(cut: SplitFrame) -> str:
    """Return the name of a frame with its channel and sequence number, as a rule would select it."""
    words = [type(cut.frame).__name__]
    for name in ("channel", "sequence"):
        value = getattr(cut.frame, name, None)
        if value is not None:
            words.append(f"{name}={value}")
    return " ".join(words)


def _apply(plan: _Plan, rule: FaultRule, cut: SplitFrame, detail: float) -> None:
    offset = rule.selector.offset
    chosen = None if offset is None else offset - cut.offset
    match rule.action:
        case Drop():
            plan.is_dropped = True
        case Duplicate(copy_count):
            plan.copy_count += copy_count
        case Delay(by_ns, jitter_ns):
            plan.delay_ns += by_ns + detail * jitter_ns
        case Reorder():
            plan.reorder = rule.action
        case Corrupt(at):
            position = at if at is not None else chosen
            if position is None:
                position = int(detail * len(plan.data))
            spoiled = bytearray(plan.data)
            spoiled[position % len(spoiled)] ^= 1 << int(detail * len(spoiled) * 8) % 8
            plan.data = bytes(spoiled)
        case Cut(at):
            plan.cut_at = at or chosen or 0
        case Stall(duration_ns):
            plan.delay_ns += math.inf if duration_ns is None else duration_ns
        case Throttle(bytes_per_second):
            plan.bytes_per_second = bytes_per_second
        case Fragment(size_bytes):
            plan.piece_bytes = size_bytes
        case Coalesce():
            plan.coalesce = rule.action


class FaultInjector:
    """Applies fault rules to both directions; perform its actions in order, and call `time_passed` at `next_due_ns`.

    The rules that apply to a frame depend only on the seed and on the frames before it in its direction.
    """

    def __init__(self, rules: Sequence[FaultRule], seed: str) -> None:
        self.lanes: Final = {
            direction: FaultLane(direction, rules, seed) for direction in Direction
        }
        self.fault_counts: Final[Counter[str]] = Counter()
        self.is_cut = False

    @property
    def next_due_ns(self) -> int | None:
        """Time at which held data is next forwarded, in ns, or None if there is none."""
        due_ns = min(lane.next_due_ns for lane in self.lanes.values())
        return None if self.is_cut or due_ns == math.inf else math.ceil(due_ns)

    @property
    def held_bytes(self) -> int:
        """Number of bytes that were received but not forwarded yet."""
        return sum(lane.held_bytes for lane in self.lanes.values())

    def received(self, direction: Direction, data: bytes, now_ns: int) -> list[ProxyAction]:
        """Add bytes that go in `direction`. ProtocolError if they are not frames.

        The injector is unusable afterwards.
        """
        return self._step(lambda: self.lanes[direction].received(data, now_ns), now_ns)

    def ended(self, direction: Direction, now_ns: int) -> list[ProxyAction]:
        """The sender of `direction` has ended its stream."""
        return self._step(lambda: self.lanes[direction].ended(now_ns), now_ns)

    def time_passed(self, now_ns: int) -> list[ProxyAction]:
        """Return the actions that are due by now."""
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
