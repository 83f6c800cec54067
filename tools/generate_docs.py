"""Writes docs/generated from the code, or with `--check` says which pages are stale and which references are broken.

Every page is a function from nothing to text, in a module of `tools/pages`; add it to PAGES, or to UNCHECKED where it
would be stale after every change. Pages that are written by hand may have parts of that kind between marks
(`tools/pages/embedded.py`); add them to EMBEDDED.
"""

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
GENERATED: Final = ROOT / "docs" / "generated"
sys.path.insert(0, str(ROOT))

# These need the path above.
from tools.pages.configuration import configuration_page  # noqa: E402
from tools.pages.embedded import embed  # noqa: E402
from tools.pages.floor_plan import floor_plan_page  # noqa: E402
from tools.pages.lifecycles import lifecycles_page  # noqa: E402
from tools.pages.metrics import metrics_page  # noqa: E402
from tools.pages.operators import operators_page  # noqa: E402
from tools.pages.protocol import protocol_page  # noqa: E402
from tools.pages.pyflink_parity import pyflink_parity_page  # noqa: E402
from tools.pages.references import broken_references  # noqa: E402
from tools.pages.rest import openapi_page, rest_page  # noqa: E402
from tools.pages.rpc import rpc_page  # noqa: E402
from tools.pages.size import size_page  # noqa: E402
from tools.pages.travel import PARTS  # noqa: E402

NOTE: Final = "<!-- Made from the code by `make docs`; edit the code, not this page. -->\n"

PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration.md": configuration_page,
    "floor_plan.md": floor_plan_page,
    "lifecycles.md": lifecycles_page,
    "metrics.md": metrics_page,
    "openapi.json": openapi_page,
    "operators.md": operators_page,
    "protocol.md": protocol_page,
    "pyflink_parity.md": pyflink_parity_page,
    "rest.md": rest_page,
    "rpc.md": rpc_page,
}

UNCHECKED: Final[dict[str, Callable[[], str]]] = {"size.md": size_page}
"""Pages that `--check` does not compare."""

EMBEDDED: Final[dict[str, dict[str, Callable[[], str]]]] = {"how_a_record_travels.md": PARTS}
"""Pages of docs/ with parts that the code makes."""


def made_pages() -> dict[Path, str]:
    """Every page that the code makes, or makes parts of, with its text."""
    made = {
        GENERATED / name: (NOTE if name.endswith(".md") else "") + page()
        for name, page in PAGES.items()
    }
    for name, parts in EMBEDDED.items():
        path = GENERATED.parent / name
        made[path] = embed(path.read_text(encoding="utf-8"), parts)
    return made


def stale_pages() -> list[str]:
    """Differences between the pages that stand there and the pages the code makes."""
    found: list[str] = []
    for path, after in made_pages().items():
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        found += difflib.unified_diff(
            before.splitlines(),
            after.splitlines(),
            f"{path.name} (there)",
            f"{path.name} (code)",
            lineterm="",
        )
    for path in sorted(GENERATED.glob("*")):
        if path.name not in PAGES | UNCHECKED:
            found.append(f"{path.name}: no page of this name is made any more")
    return found


def main() -> int:
    """Write the pages, or check them; the exit code is 1 when a page is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail when stale")
    if parser.parse_args().check:
        stale, broken = stale_pages(), broken_references(ROOT)
        print("\n".join([*stale, *broken]), end="\n" if stale or broken else "")
        if stale:
            print("what the code makes of docs/ is stale: run `make docs`")
        return 1 if stale or broken else 0
    GENERATED.mkdir(parents=True, exist_ok=True)
    unchecked = {GENERATED / name: NOTE + page() for name, page in UNCHECKED.items()}
    for path, text in (made_pages() | unchecked).items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
