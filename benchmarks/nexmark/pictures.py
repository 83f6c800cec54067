"""The pictures of the report: bars by query, one for each engine."""

from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.nexmark.flames import AREAS, Stacks, area_of, cells_of
from benchmarks.nexmark.multiples import doubts
from benchmarks.nexmark.report import engines
from benchmarks.pictures import save_figures

LETTERS = 190
"""Of a flame graph's text, as many as fit into its whole width."""

PICTURES = {
    "nexmark_rates": ("rows_per_second", 1e6, "million rows per second"),
    "nexmark_costs": ("cpu_seconds_per_mrow", 1, "processor seconds per million rows"),
}


def has_bars(lines: Mapping[str, Any]) -> bool:
    """Whether there is a figure without doubt."""
    return any(
        not doubts(line["figures"], peer.name)
        for line in lines.values()
        for peer in engines([line])
    )


def draw(lines: Mapping[str, Any], key: str, unit: float, label: str) -> Figure:
    """Return bars on a logarithmic scale, of what may be compared: engines are up to a thousand times apart."""
    peers = engines(list(lines.values()))
    figure, panel = plt.subplots(figsize=(10.0, 4.0), layout="constrained")
    width = 0.85 / max(1, len(peers))
    for index, peer in enumerate(peers):
        values = [
            nan
            if doubts(line["figures"], peer.name)
            else line["figures"].get(f"{peer.name}_{key}", nan) / unit
            for line in lines.values()
        ]
        places = [place + (index - (len(peers) - 1) / 2) * width for place in range(len(lines))]
        panel.bar(places, values, width, label=peer.title)
    panel.set_yscale("log")
    panel.set_ylabel(label)
    panel.set_xticks(range(len(lines)), list(lines))
    panel.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.18))
    return figure


def flame_graph(stacks: Stacks) -> Figure:
    """Return the functions of a profile, callers above, as wide as their share of the samples."""
    cells = list(cells_of(stacks))
    depth_count = 1 + max((cell.depth for cell in cells), default=0)
    figure, panel = plt.subplots(figsize=(11.0, 0.6 + 0.17 * depth_count), layout="constrained")
    areas = list(dict.fromkeys(area_of(cell.frame) for cell in cells))
    colours = {area: f"C{AREAS.index(area)}" for area in areas}
    for cell in cells:
        place = (cell.depth, cell.width, 0.92, cell.begin)
        panel.barh(*place, color=colours[area_of(cell.frame)], edgecolor="white", linewidth=0.4)
        name, room = cell.frame.partition(" ")[0], int(cell.width * LETTERS)
        if room >= min(len(name), 8):
            label = name if len(name) <= room else f"{name[: room - 1]}…"
            panel.text(cell.begin + 0.001, cell.depth, label, fontsize=5.5, va="center")
    panel.invert_yaxis()
    panel.set_xlim(0, 1)
    panel.set_axis_off()
    handles = [Patch(color=colours[area], label=area) for area in areas]
    panel.legend(
        handles=handles, fontsize=6, ncols=6, loc="upper center", bbox_to_anchor=(0.5, 0.0)
    )
    return figure


def draw_all(lines: Mapping[str, Any], stacks: Mapping[str, Stacks], directory: Path) -> list[str]:
    """Draw into `directory`; return the names of the pictures."""
    figures = {name: draw(lines, *how) for name, how in PICTURES.items() if has_bars(lines)}
    figures |= {f"nexmark_flames_{query}": flame_graph(seen) for query, seen in stacks.items()}
    return save_figures(figures.items(), directory)
