"""The picture of `report`: records per second of each query, a bar for each way."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.batch_report.report import NAMES, PICTURE, Line, rates_of
from benchmarks.pictures import save_figures


def draw(runs: Sequence[Line], directory: Path) -> list[str]:
    """Draw what there are figures for; return the names."""
    if not runs:
        return []
    figure, panel = plt.subplots(figsize=(7.4, 3.4), layout="constrained")
    width = 0.8 / len(NAMES)
    for place, (way, name) in enumerate(NAMES.items()):
        rates = [rates_of(line).get(way, 0.0) for line in runs]
        panel.bar([at + place * width for at in range(len(runs))], rates, width, label=name)
    middle = 0.4 - width / 2
    panel.set_xticks(
        [at + middle for at in range(len(runs))], [line["figures"]["query"] for line in runs]
    )
    panel.set_yscale("log")
    panel.set_ylabel("records per second")
    panel.legend(fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return save_figures([(PICTURE, figure)], directory)
