"""One picture for each question: its series on logarithmic axes, with a line of slope 1 beside them."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks.growth.series import Series
from benchmarks.pictures import save_figures

WITHOUT_PICTURE = frozenset({"task_managers"})
"""Two points say more as figures."""


def draw_all(found: Sequence[Series], directory: Path) -> list[str]:
    """Write an SVG for each question there is data for; return their names."""
    questions = dict.fromkeys(series.question for series in found)
    return save_figures(
        (
            (f"growth_{question}", draw([each for each in found if each.question == question]))
            for question in questions
            if question not in WITHOUT_PICTURE
        ),
        directory,
    )


def draw(own: Sequence[Series]) -> Figure:
    """Draw one question's series (at least one)."""
    figure, panel = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    for series in own:
        panel.plot(series.sizes, series.values, "o-", label=series.name)
    longest = max(own, key=lambda series: series.sizes[-1] / series.sizes[0])
    first, last = longest.sizes[0], longest.sizes[-1]
    floor = min(value for series in own for value in series.values)
    ceiling = max(value for series in own for value in series.values)
    # Slope 1 from the lower left corner, as far as the picture goes.
    end = min(last, first * max(10.0, ceiling / floor))
    panel.plot([first, end], [floor, floor * end / first], ":", color="grey", label="slope 1")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel(own[0].size_name)
    panel.set_ylabel(own[0].unit)
    panel.legend(fontsize=8)
    return figure
