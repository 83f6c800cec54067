"""Flame graph: a tree of call stacks, each frame with the number of samples that had it in this place. Pure.

Source: Flink JobVertexFlameGraph and its factory; Gregg, The Flame Graph, 2016.
"""

import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

Stack = tuple[str, ...]
"""Names of frames, the outermost first."""

NODE_COUNT_MAX: Final = 4_000
"""Frames that one graph has at most: it has to fit into a message, and a screen shows fewer."""
_ROOT: Final = "root"


class FlameGraphNode(msgspec.Struct, frozen=True, array_like=True):
    """A frame, how many samples had it here, and what it called. What `children` lack of `value` is its own time."""

    name: str
    value: int
    children: tuple["FlameGraphNode", ...] = ()


EMPTY: Final = FlameGraphNode(_ROOT, 0)


@dataclass
class _Frame:
    value: int = 0
    children: dict[str, "_Frame"] = field(default_factory=dict[str, "_Frame"])

    def child(self, name: str) -> "_Frame":
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = _Frame()
        return found

    def add(self, node: FlameGraphNode) -> None:
        self.value += node.value
        for each in node.children:
            self.child(each.name).add(each)


def flame_graph(
    stacks: Mapping[Stack, int], node_count_max: int = NODE_COUNT_MAX
) -> FlameGraphNode:
    """Return the tree of stacks with their numbers of samples, without the rarest frames where it would be too big."""
    root = _Frame()
    for stack, count in stacks.items():
        if not count:
            continue
        root.value += count
        frame = root
        for name in stack:
            frame = frame.child(name)
            frame.value += count
    return _pruned(root, node_count_max)


def merged(
    graphs: Iterable[FlameGraphNode], node_count_max: int = NODE_COUNT_MAX
) -> FlameGraphNode:
    """Return the tree of all samples of several graphs."""
    root = _Frame()
    for graph in graphs:
        root.add(graph)
    return _pruned(root, node_count_max)


def _pruned(root: _Frame, node_count_max: int) -> FlameGraphNode:
    """Keep the frames with the most samples. No frame has more than its caller, so that the rest is a tree still."""
    numbers = itertools.count()
    waiting = [(-root.value, next(numbers), root)]
    kept: set[int] = set()
    while waiting and len(kept) < node_count_max:
        _, _, frame = heapq.heappop(waiting)
        kept.add(id(frame))
        for child in frame.children.values():
            heapq.heappush(waiting, (-child.value, next(numbers), child))
    return _node(_ROOT, root, kept)


def _node(name: str, frame: _Frame, kept: set[int]) -> FlameGraphNode:
    children = sorted(
        (item for item in frame.children.items() if id(item[1]) in kept),
        key=lambda item: (-item[1].value, item[0]),
    )
    return FlameGraphNode(
        name, frame.value, tuple(_node(below, child, kept) for below, child in children)
    )
