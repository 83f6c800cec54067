"""Flame graphs: a tree of call stacks, as data, as folded stacks, and as a self-contained SVG. Pure.

Each frame has the number of samples in which it was at its place. In the picture the width of a frame is its share of
the samples, and its callers are below it. Source: Flink JobVertexFlameGraph and its factory; Gregg, The Flame Graph,
2016.
"""

import heapq
import html
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

Stack = tuple[str, ...]
"""Names of frames, the outermost first."""

NODE_COUNT_MAX: Final = 4_000
"""Largest number of frames of one graph: it must fit into a message, and a screen shows fewer."""
_ROOT: Final = "root"
_WIDTH: Final = 1200
_ROW: Final = 18
_TOP: Final = 48
_CHARACTER: Final = 7.0
_LEAST_WIDTH: Final = 0.4
"""Width in pixels below which a frame is not drawn."""


class FlameGraphNode(msgspec.Struct, frozen=True, array_like=True):
    """A frame, its number of samples, and the frames that it called.

    `value` minus the sum of `children` is its own time.
    """

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
    """Return the tree of stacks with their numbers of samples, without the rarest frames if it would be too large."""
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
    """Keep the frames with the most samples. No frame has more than its caller, so the result is still a tree."""
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


def folded_stacks(root: FlameGraphNode) -> Iterator[str]:
    """Yield `caller;callee 12` for each stack that was sampled."""
    yield from _folded(root, ())


def _folded(frame: FlameGraphNode, callers: tuple[str, ...]) -> Iterator[str]:
    own = frame.value - sum(child.value for child in frame.children)
    # A semicolon divides frames.
    stack = (*callers, frame.name.replace(";", ":"))
    if own > 0:
        yield f"{';'.join(stack)} {own}"
    for child in frame.children:
        yield from _folded(child, stack)


def flame_graph_svg(root: FlameGraphNode, title: str, unit: str = "samples") -> str:
    """Return the picture; a frame under the pointer shows its name, its number of `unit`, and its share."""
    height = _TOP + _ROW * (_depth(root) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="monospace" font-size="12">',
        f"<title>{_escaped(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{_WIDTH / 2}" y="24" text-anchor="middle" font-size="16">{_escaped(title)}</text>',
        *_rectangles(root, 0.0, float(_WIDTH), height - _ROW, (max(1, root.value), unit)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _depth(frame: FlameGraphNode) -> int:
    return 1 + max(map(_depth, frame.children), default=0)


def _rectangles(
    frame: FlameGraphNode, x: float, width: float, y: int, whole: tuple[int, str]
) -> Iterator[str]:
    if width < _LEAST_WIDTH:
        return
    total, unit = whole
    title = f"{frame.name}: {frame.value:,} {unit}, {frame.value / total:.1%}"
    shown = _fitting(frame.name, width)
    yield (
        f'<g><title>{_escaped(title)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 1}" '
        f'fill="{_color(frame.name)}" rx="2"/>'
        + (f'<text x="{x + 3:.1f}" y="{y + 13}">{_escaped(shown)}</text>' if shown else "")
        + "</g>"
    )
    for child in sorted(frame.children, key=lambda one: one.name):
        child_width = width * child.value / max(1, frame.value)
        yield from _rectangles(child, x, child_width, y - _ROW, whole)
        x += child_width


def _fitting(name: str, width: float) -> str:
    room = int((width - 6) / _CHARACTER)
    if room < 3:
        return ""
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _color(name: str) -> str:
    """Return a warm colour that is the same for a name in every picture."""
    digest = zlib.crc32(name.encode())
    return f"hsl({digest % 50}, 85%, {65 + digest // 50 % 12}%)"


def _escaped(text: str) -> str:
    # Characters that XML does not have at all would spoil the whole picture.
    return html.escape("".join(one if one.isprintable() else "?" for one in text), quote=True)
