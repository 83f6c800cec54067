"""Writes docs/generated from the code, or with `--check` says which pages are stale.

Every page is a function from nothing to text; add it to PAGES.
"""

import argparse
import difflib
import enum
import importlib
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
GENERATED: Final = ROOT / "docs" / "generated"
sys.path.insert(0, str(ROOT))

# These need the path above.
from headrace.core.config import declared_options  # noqa: E402
from headrace.core.lifecycle import EXECUTION_TRANSITIONS, JOB_TRANSITIONS  # noqa: E402
from tests.architecture.floor_plan import ARROWS, GROUND, module_of, source_files  # noqa: E402

NOTE: Final = "<!-- Made from the code by `make docs`; edit the code, not this page. -->\n"


def floor_plan_page() -> str:
    """Who may import whom, one row per folder."""
    lines = [
        "# Floor plan",
        "",
        f"The ground is {', '.join(f'`{name}`' for name in sorted(GROUND))};",
        "its folders import only `core`.",
        "",
        "| folder | may import |",
        "| --- | --- |",
    ]
    for folder, targets in ARROWS.items():
        above = [f"`{name}`" for name in sorted(targets - GROUND)]
        if targets >= GROUND:
            above.append("the ground")
        else:
            above += [f"`{name}`" for name in sorted(targets & GROUND)]
        name = f"`headrace/{folder.replace('.', '/')}`" if folder else "`headrace/__init__.py`"
        lines.append(f"| {name} | {', '.join(above) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def state_drawing(title: str, transitions: Mapping[enum.Enum, frozenset[enum.Enum]]) -> list[str]:
    """One lifecycle as a Mermaid state diagram; terminal states lead to the end mark."""
    lines = [f"## {title}", "", "```mermaid", "stateDiagram-v2"]
    order = list(transitions)
    for state, following in transitions.items():
        lines += [f"    {state.name} --> {to.name}" for to in sorted(following, key=order.index)]
        if not following:
            lines.append(f"    {state.name} --> [*]")
    return [*lines, "```", ""]


def lifecycles_page() -> str:
    """The states of jobs and executions, drawn from their tables."""
    return "\n".join(
        [
            "# Lifecycles",
            "",
            *state_drawing("A job (JobStatus)", JOB_TRANSITIONS),
            *state_drawing("An execution (ExecutionState)", EXECUTION_TRANSITIONS),
        ]
    )


def default_text(value: object) -> str:
    """A default as a user would write it in `-D key=value`."""
    match value:
        case None:
            return "(none)"
        case bool():
            return str(value).lower()
        case enum.Enum():
            return value.name
        case timedelta():
            return f"{value // timedelta(milliseconds=1)} ms"
        case _:
            return str(value) or "(empty)"


def configuration_page() -> str:
    """Every option that any module declares: importing a module is what declares its options."""
    for file in source_files():
        if "ConfigOption(" in file.read_text(encoding="utf-8"):
            importlib.import_module(module_of(file))
    lines = [
        "# Configuration",
        "",
        "| key | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for option in declared_options():
        default = default_text(option.default)
        kind = option.value_type.__name__
        lines.append(
            f"| `{option.key}` | {kind} | {default} | {option.doc.replace('|', chr(92) + '|')} |"
        )
    return "\n".join(lines) + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration.md": configuration_page,
    "floor_plan.md": floor_plan_page,
    "lifecycles.md": lifecycles_page,
}


def stale_pages() -> list[str]:
    """Differences between the pages that stand there and the pages the code makes."""
    found: list[str] = []
    for name, page in PAGES.items():
        path = GENERATED / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        after = NOTE + page()
        found += difflib.unified_diff(
            before.splitlines(),
            after.splitlines(),
            f"{name} (there)",
            f"{name} (code)",
            lineterm="",
        )
    for path in sorted(GENERATED.glob("*")):
        if path.name not in PAGES:
            found.append(f"{path.name}: no page of this name is made any more")
    return found


def main() -> int:
    """Write the pages, or check them; the exit code is 1 when a page is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when stale")
    if parser.parse_args().check:
        found = stale_pages()
        if found:
            print("\n".join(found))
            print("docs/generated is stale: run `make docs`")
        return 1 if found else 0
    GENERATED.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (GENERATED / name).write_text(NOTE + page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
