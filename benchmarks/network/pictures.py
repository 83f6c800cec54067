"""The pictures of the report, one function each: newest sections in, a matplotlib figure out, or None without data."""

from collections.abc import Callable, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from benchmarks.pictures import save_figures

Sections = Mapping[str, Any]
OURS, RAW = "tab:blue", "lightgrey"


def throughput(sections: Sections) -> Figure | None:
    """Heat maps of rows per second, one per row size."""
    return _heat_maps(sections, "mrows_per_s", "million rows per second", "{:.3g}")


def share_of_raw(sections: Sections) -> Figure | None:
    """Heat maps of the share of raw sockets, one per row size."""
    cells = [cell for cell in sections.get("cells", []) if "share_percent" in cell]
    return _heat_maps({"cells": cells}, "share_percent", "percent of raw sockets", "{:.0f}")


def latency(sections: Sections) -> Figure | None:
    """Median and 99th percentile by buffer timeout, a line for each number of channels."""
    cells = [cell for cell in sections.get("cells", []) if "latency_ms_p50" in cell]
    if not cells:
        return None
    sizes = _values(cells, "row_bytes")
    figure, panels = _panels(len(sizes))
    for size, panel in zip(sizes, panels, strict=True):
        for number, channels in enumerate(_values(cells, "channels")):
            line = sorted(
                (cell["timeout_ms"], cell["latency_ms_p50"], cell["latency_ms_p99"])
                for cell in cells
                if cell["row_bytes"] == size and cell["channels"] == channels
            )
            x = [str(timeout) for timeout, _, _ in line]
            color = f"C{number}"
            panel.plot(x, [p50 for _, p50, _ in line], "o-", color=color, label=f"{channels}")
            panel.plot(x, [p99 for _, _, p99 in line], "v:", color=color)
        panel.set_yscale("log")
        panel.set_title(f"rows of {size:,} B")
        panel.set_xlabel("buffer timeout, ms")
    panels[0].set_ylabel("ms; dotted: 99th percentile")
    panels[-1].legend(title="channels", fontsize=8)
    return figure


def disk(sections: Sections) -> Figure | None:
    """Stored partitions beside a plain file."""
    rows = sections.get("disk", [])
    if not rows:
        return None
    figure, panels = _panels(2)
    for panel, what, title in (
        (panels[0], "write_synced", "write, until fsync has returned"),
        (panels[1], "read", "read, not from the page cache"),
    ):
        names = [f"{row['kind']}\n{row['channels']} channels" for row in rows]
        _bars(
            panel,
            names,
            {
                "a plain file": [row[f"raw_{what}_mb_per_s"] for row in rows],
                "partition": [row[f"{what}_mb_per_s"] for row in rows],
            },
        )
        panel.set_title(title)
    panels[0].set_ylabel("MB/s")
    panels[0].legend(fontsize=8)
    return figure


def costs(sections: Sections) -> Figure | None:
    """TLS beside TCP, and codecs by kind of data."""
    tls, codecs = sections.get("tls"), sections.get("compression", [])
    codecs = [row for row in codecs if "compress_mb_per_s" in row]
    if tls is None and not codecs:
        return None
    figure, panels = _panels(2)
    if tls is not None:
        names = ["raw TCP", "TCP", "TLS"]
        values = [tls["raw_tcp_mb_per_s"], tls["tcp_mb_per_s"], tls["tls_mb_per_s"]]
        panels[0].bar(names, values, color=[RAW, OURS, "tab:green"])
        panels[0].bar_label(panels[0].containers[0], fmt="{:,.0f}", fontsize=8)
    panels[0].set_title("one channel, rows of 200 B")
    panels[0].set_ylabel("MB/s")
    if codecs:
        kinds = list(dict.fromkeys(row["data"] for row in codecs))
        names = list(dict.fromkeys(row["codec"] for row in codecs))
        by_codec = {
            f"{name} {way}": [_codec_rate(codecs, kind, name, f"{way}_mb_per_s") for kind in kinds]
            for name in names
            for way in ("compress", "decompress")
        }
        _bars(panels[1], kinds, by_codec)
        panels[1].legend(fontsize=7)
    panels[1].set_title("compression of 128 KiB, one core")
    return figure


PICTURES: dict[str, Callable[[Sections], Figure | None]] = {
    "network_throughput": throughput,
    "network_share_of_raw": share_of_raw,
    "network_latency": latency,
    "network_disk": disk,
    "network_costs": costs,
}


def draw_all(sections: Sections, directory: Path) -> list[str]:
    """Write an SVG of each picture there is data for; return their names."""
    return save_figures(((name, draw(sections)) for name, draw in PICTURES.items()), directory)


def _panels(count: int) -> tuple[Figure, Sequence[Any]]:
    figure, panels = plt.subplots(
        1, count, figsize=(4.2 * count, 3.2), squeeze=False, layout="constrained"
    )
    return figure, list(panels[0])


def _values(cells: Sequence[Mapping[str, Any]], key: str) -> list[int]:
    return sorted({cell[key] for cell in cells})


def _codec_rate(rows: Sequence[Mapping[str, Any]], kind: str, codec: str, key: str) -> float:
    """Not a number where nothing was compressed, and so nothing is decompressed."""
    found = [row.get(key, nan) for row in rows if (row["data"], row["codec"]) == (kind, codec)]
    return found[0] if found else nan


def _bars(panel: Any, names: Sequence[str], groups: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(groups)
    for index, (label, values) in enumerate(groups.items()):
        color = RAW if label == "a plain file" else None
        places = [place + (index - (len(groups) - 1) / 2) * width for place in range(len(names))]
        drawn = panel.bar(places, values, width, label=label, color=color)
        panel.bar_label(drawn, fmt=lambda v: "" if isnan(v) else f"{v:,.0f}", fontsize=6)
    panel.set_xticks(range(len(names)), names, fontsize=8)


def _heat_maps(sections: Sections, key: str, label: str, form: str) -> Figure | None:
    cells = sections.get("cells", [])
    if not cells:
        return None
    sizes, channels = _values(cells, "row_bytes"), _values(cells, "channels")
    # -1 is the longest of all timeouts.
    timeouts = sorted(_values(cells, "timeout_ms"), key=lambda timeout: (timeout < 0, timeout))
    figure, panels = _panels(len(sizes))
    for size, panel in zip(sizes, panels, strict=True):
        found = {
            (cell["channels"], cell["timeout_ms"]): cell[key]
            for cell in cells
            if cell["row_bytes"] == size
        }
        grid = [[found.get((count, timeout), 0.0) for timeout in timeouts] for count in channels]
        panel.imshow(grid, cmap="Blues", aspect="auto", vmin=0)
        highest = max(max(line) for line in grid) or 1.0
        for row, line in enumerate(grid):
            for column, value in enumerate(line):
                is_known = (channels[row], timeouts[column]) in found
                color = "white" if value > 0.6 * highest else "black"
                text = form.format(value) if is_known else "–"
                panel.text(column, row, text, ha="center", va="center", color=color)
        panel.set_xticks(range(len(timeouts)), [str(timeout) for timeout in timeouts])
        panel.set_yticks(range(len(channels)), [str(count) for count in channels])
        panel.set_title(f"rows of {size:,} B: {label}", fontsize=9)
        panel.set_xlabel("buffer timeout, ms")
    panels[0].set_ylabel("channels")
    return figure
