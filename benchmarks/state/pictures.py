"""The pictures of the report, one function each: a question's newest figures in, a matplotlib figure out."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks.pictures import save_figures
from benchmarks.state.report import by_backend_and_size, share_of

Figures = Mapping[str, Any]


def back_pressure(figures: Figures) -> Figure:
    """Duration and its parts by size, aligned beside unaligned."""
    cells = [cell for cell in figures["cells"] if "duration_ms" in cell]
    figure, (panel,) = _panels(1)
    names = [f"{cell['megabytes']:,} MB\n{cell['way']}" for cell in cells]
    _bars(
        panel,
        names,
        {
            "whole duration": [cell["duration_ms"] / 1000 for cell in cells],
            "until the first barrier": [cell["start_delay_ms"] / 1000 for cell in cells],
            "alignment": [cell["alignment_ms"] / 1000 for cell in cells],
            "write": [cell["write_ms"] / 1000 for cell in cells],
        },
    )
    panel.axhline(1, color="black", linewidth=0.8, linestyle=":")
    panel.set_yscale("symlog", linthresh=0.1)
    panel.set_ylabel("seconds; dotted: 1 s")
    panel.legend(fontsize=8)
    return figure


def checkpoint(figures: Figures) -> Figure:
    """Pause and write by size, a line for each backend; dotted the second checkpoint."""
    figure, panels = _panels(2)
    _lines(
        panels[0], figures, {"first_pause_ms": "o-", "second_pause_ms": "v:"}, "pause, milliseconds"
    )
    _lines(panels[1], figures, {"first_write_s": "o-", "second_write_s": "v:"}, "write, seconds")
    panels[0].legend(fontsize=8)
    return figure


def throughput(figures: Figures) -> Figure:
    """Rates with and without checkpoints."""
    cells = figures["cells"]
    figure, panels = _panels(max(1, len(cells)))
    for cell, panel in zip(cells, panels, strict=False):
        _bars(
            panel,
            [cell["backend"]],
            {
                "no checkpoints": [cell["without_krecords_per_s"]],
                f"every {cell['interval_ms']} ms": [cell["with_krecords_per_s"]],
            },
        )
        share = share_of(cell)
        panel.set_title("not decided" if share is None else f"{share:.0f} % in turns")
    panels[0].set_ylabel("thousand records per second")
    panels[0].legend(fontsize=8)
    return figure


def restore(figures: Figures) -> Figure:
    """Seconds by size, a line for each backend; dotted from a savepoint."""
    figure, panels = _panels(1)
    _lines(panels[0], figures, {"restore_s": "o-", "savepoint_restore_s": "v:"}, "restore, seconds")
    panels[0].legend(fontsize=8)
    return figure


def access(figures: Figures) -> Figure:
    """Microseconds per access, the heap beside RocksDB."""
    figure, (panel,) = _panels(1)
    names = ("write", "read", "read_modify_write", "append")
    groups = {
        backend: [figures[f"{backend}_{name}_us"] for name in names]
        for backend in ("heap", "rocksdb")
        if f"{backend}_write_us" in figures
    }
    _bars(panel, [name.replace("_", ", ") for name in names], groups)
    panel.set_yscale("log")
    panel.set_ylabel("microseconds")
    panel.legend(fontsize=8)
    return figure


PICTURES: dict[str, Callable[[Figures], Figure]] = {
    "back_pressure": back_pressure,
    "checkpoint": checkpoint,
    "throughput": throughput,
    "restore": restore,
    "access": access,
}


def draw_all(runs: Mapping[str, Mapping[str, Any]], directory: Path) -> list[str]:
    """Draw what was measured into `directory`; return the names of the pictures."""
    return save_figures(
        (
            (f"state_{question}", draw(runs[question]["figures"]))
            for question, draw in PICTURES.items()
            if question in runs
        ),
        directory,
    )


def _panels(count: int) -> tuple[Figure, Sequence[Any]]:
    figure, panels = plt.subplots(1, count, figsize=(8.0, 3.2), squeeze=False, layout="constrained")
    return figure, list(panels[0])


def _bars(panel: Any, names: Sequence[str], groups: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / max(1, len(groups))
    for number, (label, values) in enumerate(groups.items()):
        panel.bar([x + number * width for x in range(len(names))], values, width, label=label)
    panel.set_xticks([x + 0.4 - width / 2 for x in range(len(names))], names)


def _lines(panel: Any, figures: Figures, styles: Mapping[str, str], label: str) -> None:
    rows = by_backend_and_size(figures)
    for number, backend in enumerate(dict.fromkeys(row["backend"] for row in rows)):
        own = sorted(
            (row for row in rows if row["backend"] == backend), key=lambda r: r["megabytes"]
        )
        sizes = [row["megabytes"] for row in own]
        for index, (name, style) in enumerate(styles.items()):
            values = [row[name] for row in own]
            legend = backend if index == 0 else None
            panel.plot(sizes, values, style, color=f"C{number}", label=legend)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("state, MB")
    panel.set_ylabel(label)
