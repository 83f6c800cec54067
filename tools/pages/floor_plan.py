"""floor_plan.md: who may import whom, one row per folder."""

from typing import Final

from tests.architecture.floor_plan import ARROWS, GROUND
from tools.pages.markdown import table

FILES: Final = {"": "__init__.py", "__main__": "__main__.py"}
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
    return "\n".join(lines) + "\n"


def _row(folder: str, targets: frozenset[str]) -> tuple[str, str]:
    allowed = [f"`{name}`" for name in sorted(targets - GROUND)]
    if targets >= GROUND:
        allowed.append("the ground")
    else:
        allowed += [f"`{name}`" for name in sorted(targets & GROUND)]
    path = FILES.get(folder) or folder.replace(".", "/")
    return f"`headrace/{path}`", ", ".join(allowed) or "nothing"
