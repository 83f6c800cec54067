"""The pictures of the report, one function each: cells in, a matplotlib figure out, or None without data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks.keyed_latency.peers_text import title_of
from benchmarks.keyed_latency.report import (
    P50_AIM_MS,
    P99_AIM_MS,
    Cells,
    section_of,
)
from benchmarks.pictures import save_figures


def timeouts(cells: Cells) -> Figure | None:
    """Latency and throughput over the buffer timeout."""
    found = section_of(cells, "timeouts")
    if not found:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    left, right = list(axes)
    places = range(len(found))
    for name, style in (("p50_ms", "o-"), ("p99_ms", "v:")):
        left.plot(places, [cell[name] for cell in found], style, color="tab:blue", label=name[:3])
    for aim_ms in (P50_AIM_MS, P99_AIM_MS):
        left.axhline(aim_ms, color="lightgrey", linewidth=0.8)
    left.set_yscale("log")
    left.set_ylabel("ms; grey: the aims")
    left.legend(fontsize=8)
    right.plot(
        places, [cell["max_records_per_second"] / 1000 for cell in found], "o-", color="tab:green"
    )
    right.set_ylim(bottom=0)
    right.set_ylabel("thousand records per second")
    for panel in (left, right):
        _label(panel, [cell["buffer_timeout_ms"] for cell in found])
    return figure


def governed(cells: Cells) -> Figure | None:
    """Measured 99th percentile over the target, a line for each rate."""
    found = section_of(cells, "governed")
    if not found:
        return None
    figure, panel = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    targets = sorted({cell["target_ms"] for cell in found})
    panel.plot(targets, targets, color="black", linewidth=0.8, linestyle=":", label="target")
    for rate in sorted({cell["rate_per_second"] for cell in found}):
        own = [cell for cell in found if cell["rate_per_second"] == rate]
        panel.plot(
            [cell["target_ms"] for cell in own],
            [cell["p99_ms"] for cell in own],
            "o-",
            label=f"{rate:,} records/s",
        )
    panel.set_xlabel("target, ms")
    panel.set_ylabel("99th percentile, ms")
    panel.set_ylim(bottom=0)
    panel.legend(fontsize=8)
    return figure


def peers(cells: Cells) -> Figure | None:
    """Median and 99th percentile of each way of setting each engine, the turns as dots; a panel for each rate."""
    found = section_of(cells, "peers")
    if not found:
        return None
    most = max(len(cell["contenders"]) for cell in found)
    figure, axes = plt.subplots(
        1,
        len(found),
        figsize=(6.4 * len(found), 1 + 0.4 * most),
        layout="constrained",
        squeeze=False,
    )
    for panel, cell in zip(axes.flat, found, strict=True):
        contenders = cell["contenders"]
        places = range(len(contenders))
        for name, height, color in (("p50_ms", 0.2, "tab:blue"), ("p99_ms", -0.2, "tab:orange")):
            own = [place - height for place in places]
            values = [figures[name] for figures in contenders.values()]
            panel.barh(own, values, 0.36, color=color, label=name[:3])
            for place, figures in zip(own, contenders.values(), strict=True):
                turns = [turn[name] for turn in figures["turns"]]
                panel.plot(turns, [place] * len(turns), "k.", markersize=3)
        panel.set_yticks(places, [title_of(name) for name in contenders])
        panel.invert_yaxis()
        panel.set_xscale("log")
        panel.set_xlabel(f"ms, at {cell['rate_per_second']:,} records/s")
        panel.legend(fontsize=8)
    return figure


PICTURES: dict[str, Callable[[Cells], Figure | None]] = {
    "latency_timeouts": timeouts,
    "latency_governed": governed,
    "latency_peers": peers,
}


def draw_all(cells: Cells, directory: Path) -> list[str]:
    """Write an SVG of each picture there is data for; return their names."""
    return save_figures(((name, draw(cells)) for name, draw in PICTURES.items()), directory)


def _label(panel: Any, timeouts_ms: list[int]) -> None:
    panel.set_xticks(range(len(timeouts_ms)), [str(timeout_ms) for timeout_ms in timeouts_ms])
    panel.set_xlabel("buffer timeout, ms")
