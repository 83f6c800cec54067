"""The pictures of `python_report`."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks.pictures import save_figures
from benchmarks.python_report import STEPS, WHO, Line, doubts


def function(functions: Sequence[Line]) -> Figure:
    """Records per second over the number of keys."""
    figure, panel = plt.subplots(figsize=(5.2, 3.0), layout="constrained")
    places = range(len(functions))
    for name, color in (("headrace", "tab:blue"), ("pyflink", "tab:orange")):
        rates = [line["figures"][f"{name}_records_per_second"] for line in functions]
        panel.plot(
            places, rates, "o-", color=color, label={"pyflink": "PyFlink"}.get(name, "Headrace")
        )
    panel.set_xticks(list(places), [f"{line['figures']['keys']:,}" for line in functions])
    panel.set_xlabel("keys")
    panel.set_ylabel("records per second")
    panel.set_yscale("log")
    panel.legend(fontsize=8)
    return figure


def start(line: Line) -> Figure:
    """Seconds from the command on, step by step, a bar for each contender."""
    figures = line["figures"]
    measured = [who for who in WHO if f"{who}_seen_s" in figures]
    figure, panel = plt.subplots(figsize=(7.4, 0.8 + 0.5 * len(measured)), layout="constrained")
    for place, who in enumerate(reversed(measured)):
        before = 0.0
        for shade, (step, title) in enumerate(STEPS.items()):
            moment = figures[f"{who}_{step}_s"]
            color = plt.get_cmap("Blues")(0.25 + 0.15 * shade)
            label = title if place == 0 else None
            panel.barh(place, moment - before, left=before, color=color, label=label)
            before = moment
    panel.set_yticks(
        range(len(measured)), [WHO[who].replace("`", "") for who in reversed(measured)]
    )
    panel.set_xlabel("seconds")
    panel.legend(fontsize=7, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def draw(functions: Sequence[Line], started: Line | None, directory: Path) -> list[str]:
    """Draw what there are figures for; return the names."""
    figures: dict[str, Figure] = {}
    if functions and not any(doubts(line["figures"]) for line in functions):
        figures["python_function"] = function(functions)
    if started is not None:
        figures["python_start"] = start(started)
    return save_figures(figures.items(), directory)
