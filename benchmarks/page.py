"""What every page of figures says in the same way: when, where and how quietly it was measured, tables, pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs"
BUSY_LOAD: Final = 0.5
"""Load average before a run, from which on something else used the machine."""


def machine_text(
    lines: Sequence[Mapping[str, Any]], loads_before: Sequence[float] | None = None
) -> str:
    """Say when and on what it was measured, and whether the machine was busy before any part of it.

    Without `loads_before` lines tell it themselves, as far as they know.
    """
    if not lines:
        return "Nothing was measured yet.\n"
    last = max(lines, key=lambda line: str(line["date"]))
    text = f"Measured {last['date']} on {last['machine']}.\n"
    if loads_before is None:
        loads_before = [line.get("load_average_before", 0.0) for line in lines]
    load = max(loads_before, default=0.0)
    if load > BUSY_LOAD:
        text += f"\n**The machine was busy (load {load}): absolute figures mean little.**\n"
    return text


def are_alike(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the same day, machine and load stand for all of them."""
    return len({(line["date"], line["machine"], _load_of(line)) for line in lines}) < 2


def run_text(line: Mapping[str, Any]) -> str:
    """Say of one run when, on what and under which load it was measured."""
    load, is_before = _load_of(line)
    if load is None:
        told = "load not noted"
    else:
        told = f"load {load} {'before it' if is_before else 'at its end, its own part included'}"
    busy = " **The machine was busy.**" if is_before and load and load > BUSY_LOAD else ""
    return f"Measured {line['date']} on {line['machine']}; {told}.{busy}\n"


def _load_of(line: Mapping[str, Any]) -> tuple[float | None, bool]:
    """The load average, and whether it is of before the run: older lines know only that of the end."""
    before = line.get("load_average_before")
    return (line.get("load_average"), False) if before is None else (before, True)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: bool = True) -> str:
    """Return a table; with `numbers` all columns but the first are."""
    rest = " ---: |" if numbers else " --- |"
    lines = [f"| {' | '.join(heads)} |", "| --- |" + rest * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(shown, row))} |" for row in rows)])


def shown(cell: object) -> str:
    """Three digits are enough."""
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"


def picture(name: str, drawn: Sequence[str]) -> str:
    """Return the link to a picture, if there is one; its title is its name without the page's."""
    _, _, title = name.partition("_")
    return f"![{title.replace('_', ' ')}](pictures/{name}.svg)" if name in drawn else "(not drawn)"
