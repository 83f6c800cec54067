"""Flame graphs as an SVG that stands for itself, and as folded stacks.

Source: Brendan Gregg, The Flame Graph, 2016: the width of a frame is its share of the samples, its callers are below.
"""

import html
import zlib
from collections.abc import Iterator
from typing import Final

from headrace.core.process.flame_graph import FlameGraphNode

_WIDTH: Final = 1200
_ROW: Final = 18
_TOP: Final = 48
_CHARACTER: Final = 7.0
_LEAST_WIDTH: Final = 0.4
"""Width in pixels below which a frame is not drawn."""


def folded_stacks(root: FlameGraphNode) -> Iterator[str]:
    """Yield `caller;callee 12` for each stack that was seen on top."""
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
    """Return the picture; a frame under the pointer tells its name, its number of `unit`, and its share."""
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
    """Return a warm colour that a name has in every picture."""
    digest = zlib.crc32(name.encode())
    return f"hsl({digest % 50}, 85%, {65 + digest // 50 % 12}%)"


def _escaped(text: str) -> str:
    # Characters that XML does not have at all would spoil the whole picture.
    return html.escape("".join(one if one.isprintable() else "?" for one in text), quote=True)
