"""The pictures of the report: bars by query, one for each engine."""

from collections.abc import Mapping
from math import nan
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
# The same figures make the same file, byte for byte.
matplotlib.rcParams.update({"svg.hashsalt": "headrace", "svg.fonttype": "none", "font.size": 9})

import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
from matplotlib.figure import Figure  # noqa: E402

from benchmarks.nexmark.report import engines  # noqa: E402

PICTURES = {
    "nexmark_rates": ("rows_per_second", 1e6, "million rows per second"),
    "nexmark_costs": ("cpu_seconds_per_mrow", 1, "processor seconds per million rows"),
}


def draw(lines: Mapping[str, Any], key: str, unit: float, label: str) -> Figure:
    """Return bars on a logarithmic scale: engines are up to a thousand times apart."""
    peers = engines(list(lines.values()))
    figure, panel = plt.subplots(figsize=(10.0, 4.0), layout="constrained")
    width = 0.85 / max(1, len(peers))
    for index, peer in enumerate(peers):
        values = [line["figures"].get(f"{peer.name}_{key}", nan) / unit for line in lines.values()]
        places = [place + (index - (len(peers) - 1) / 2) * width for place in range(len(lines))]
        panel.bar(places, values, width, label=peer.title)
    panel.set_yscale("log")
    panel.set_ylabel(label)
    panel.set_xticks(range(len(lines)), list(lines))
    panel.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.18))
    return figure


def draw_all(lines: Mapping[str, Any], directory: Path) -> list[str]:
    """Draw into `directory`; return the names of the pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, (key, unit, label) in PICTURES.items():
        figure = draw(lines, key, unit, label)
        figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
    return list(PICTURES)
