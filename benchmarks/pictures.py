"""Sets up matplotlib for pictures of reports: no screen, and SVG files that are the same for the same figures."""

from collections.abc import Iterable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
# The same figures make the same file, byte for byte.
matplotlib.rcParams.update({"svg.hashsalt": "headrace", "svg.fonttype": "none", "font.size": 9})

import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
from matplotlib.figure import Figure  # noqa: E402


def save_figures(figures: Iterable[tuple[str, Figure | None]], directory: Path) -> list[str]:
    """Write each figure there is to `<name>.svg`, and close it; return the names."""
    directory.mkdir(parents=True, exist_ok=True)
    saved: list[str] = []
    for name, figure in figures:
        if figure is not None:
            figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)
            saved.append(name)
    return saved
