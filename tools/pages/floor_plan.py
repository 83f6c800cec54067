"""floor_plan.md: who may import whom, one row per folder; and the rooms of each large folder, in layers."""

from typing import Final

from tests.architecture.floor_plan import ARROWS, GROUND
from tests.architecture.rooms import ROOMS, Layers
from tools.pages.markdown import table

FILES: Final = {"": "__init__.py", "__main__": "__main__.py", "java_gateway": "java_gateway.py"}
"""Rows that are a single file."""


def floor_plan_page() -> str:
    """The table that the architecture tests hold the code to."""
    lines = [
        "# Floor plan",
        "",
        f"The ground is {', '.join(f'`{name}`' for name in sorted(GROUND))};",
        "its folders import only `core`.",
        "",
        *table(("folder", "may import"), [_row(*entry) for entry in ARROWS.items()]),
    ]
    lines += [
        "",
        "## Rooms",
        "",
        "Large folders have rooms. A room imports those of the layers below it; those of one layer do not know each",
        "other, unless `+` joins them. Modules beside the rooms put the rooms together.",
    ]
    for house, layers in ROOMS.items():
        lines += ["", f"### headrace/{house.replace('.', '/')}", ""]
        lines += table(("layer", "rooms and modules"), _layers(layers))
    return "\n".join(lines) + "\n"


def _layers(layers: Layers) -> list[tuple[str, str]]:
    """Return a row for each layer, the highest first."""
    return [
        (str(number), " · ".join(f"`{name}`" for name in names))
        for number, names in reversed(list(enumerate(layers, 1)))
    ]


def _row(folder: str, targets: frozenset[str]) -> tuple[str, str]:
    allowed = [f"`{name}`" for name in sorted(targets - GROUND)]
    if targets >= GROUND:
        allowed.append("the ground")
    else:
        allowed += [f"`{name}`" for name in sorted(targets & GROUND)]
    path = FILES.get(folder) or folder.replace(".", "/")
    return f"`headrace/{path}`", ", ".join(allowed) or "nothing"
