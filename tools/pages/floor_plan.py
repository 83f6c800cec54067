"""floor_plan.md: who may import whom, one row per folder; and the rooms of each large folder, in layers."""

import ast
from typing import Final

from tests.architecture.floor_plan import ARROWS, GROUND, PACKAGE
from tests.architecture.rooms import ON_TOP, ROOMS, Layers, modules_beside_rooms
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
        "other, unless `+` joins them. Modules beside the rooms and rooms on top may import every room of their house.",
    ]
    for house, layers in ROOMS.items():
        lines += ["", f"### headrace/{house.replace('.', '/')}", ""]
        lines += table(("layer", "room or module", "holds"), _rooms(house, layers))
    return "\n".join(lines) + "\n"


def _rooms(house: str, layers: Layers) -> list[tuple[str, str, str]]:
    """Return a row for each room, the highest layer first; those that know each other have one row.

    Above the layers stand the rooms that use the whole house, then the house's own modules.
    """
    on_top = [("on top", f"`{name}`", _duty(house, name)) for name in sorted(ON_TOP.get(house, ()))]
    beside = [("beside", f"`{name}`", _duty(house, name)) for name in modules_beside_rooms(house)]
    return [
        *on_top,
        *beside,
    ] + [
        (str(number), f"`{names}`", " ".join(_duty(house, name) for name in names.split("+")))
        for number, layer in reversed(list(enumerate(layers, 1)))
        for names in layer
    ]


def _duty(house: str, name: str) -> str:
    """Return the first sentence of a room's or a module's docstring."""
    place = PACKAGE.joinpath(*house.split("."), name)
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    first = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return " ".join(first.split())


def _row(folder: str, targets: frozenset[str]) -> tuple[str, str]:
    allowed = [f"`{name}`" for name in sorted(targets - GROUND)]
    if targets >= GROUND:
        allowed.append("the ground")
    else:
        allowed += [f"`{name}`" for name in sorted(targets & GROUND)]
    path = FILES.get(folder) or folder.replace(".", "/")
    return f"`headrace/{path}`", ", ".join(allowed) or "nothing"
