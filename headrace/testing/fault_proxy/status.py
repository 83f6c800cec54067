"""The proxy's live line: what has passed, what was done to it, what is held. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from headrace.testing.fault_proxy.injector import FaultInjector
from headrace.testing.fault_proxy.rules import Direction

_ARROWS: Final = {Direction.FORWARD: "→", Direction.BACKWARD: "←"}


def status_line(
    elapsed_s: float, open_count: int, injectors: Sequence[FaultInjector], *, with_frames: bool
) -> str:
    """Return one line: connections, frames and bytes per direction, faults so far, bytes held."""
    parts = [f"{elapsed_s:5.0f} s", f"{open_count} open of {len(injectors)}"]
    for direction in Direction:
        lanes = [injector.lanes[direction] for injector in injectors]
        frames: Counter[str] = Counter()
        for lane in lanes:
            frames.update(lane.frame_counts)
        size_bytes = sum(lane.byte_count for lane in lanes)
        text = f"{_ARROWS[direction]} {frames.total():,} frames {binary_size_text(size_bytes)}"
        if with_frames and frames:
            text += " (" + ", ".join(f"{name} {n:,}" for name, n in sorted(frames.items())) + ")"
        parts.append(text)
    faults: Counter[str] = Counter()
    for injector in injectors:
        faults.update(injector.fault_counts)
    parts.append(", ".join(f"{word} {n:,}" for word, n in sorted(faults.items())) or "no fault yet")
    held_bytes = sum(injector.held_bytes for injector in injectors if not injector.is_cut)
    if held_bytes:
        parts.append(f"holds {binary_size_text(held_bytes)}")
    return " | ".join(parts)


def binary_size_text(size_bytes: int) -> str:
    """Return a size people can read: `950 B`, `12.3 KiB`, `1.2 GiB`."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
