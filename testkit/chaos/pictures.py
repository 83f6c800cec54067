"""The picture of the chaos report: the recovery time of each run, by kind of disturbance."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
# The same figures must make the same file, byte for byte.
matplotlib.rcParams.update({"svg.hashsalt": "headrace", "svg.fonttype": "none", "font.size": 9})

import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)

RECOVERY_AIM_S: Final = 6.0
_ROW_INCHES: Final = 0.24


def draw_recovery(times: Mapping[str, Sequence[float]], file: Path) -> None:
    """Draw a row per moment: a dot for each run, a stroke for the median, seconds to the right."""
    names = list(times)
    figure: Any = plt.figure(figsize=(8, 1.2 + _ROW_INCHES * len(names)), layout="constrained")
    panel = figure.subplots()
    for row, name in enumerate(names):
        panel.plot(times[name], [row] * len(times[name]), "o", color="tab:blue", alpha=0.5)
        panel.plot([median(times[name])], [row], "|", color="black", markersize=14)
    panel.axvline(RECOVERY_AIM_S, color="grey", linestyle=":")
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.set_xlim(left=0)
    panel.set_xlabel(
        "seconds from the kill until every task ran again; dotted: the aim of the median"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)
