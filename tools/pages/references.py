"""Finds what hand-written pages point to and what is not there: links, files, and classes beside files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_LINK: Final = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
_FILE: Final = re.compile(r"`((?:[\w.]+/)*\w+\.py)`")
_OWN_FILES: Final = frozenset({"boom.py", "counts.py", "delays.py", "hours.py", "job.py"})
"""Programs that pages show or start."""
_NAME_BEFORE_FILE: Final = re.compile(r"`([A-Za-z_][\w.]*)`\s+\(`((?:\w+/)+\w+\.py)`")
_NAME_AFTER_FILE: Final = re.compile(r"`((?:\w+/)+\w+\.py)`,\s+`([A-Za-z_][\w.]*)`")


def broken_references(root: Path) -> list[str]:
    """Return one line per reference of README, CONTRIBUTING and docs that leads nowhere."""
    pages = [root / "README.md", root / "CONTRIBUTING.md"]
    for folder in (".", "adr", "getting_started", "how_to", "operations"):
        pages += sorted((root / "docs" / folder).glob("*.md"))
    return [
        f"{page.relative_to(root)}: {reference}"
        for page in pages
        for reference in _broken_in(page, root)
    ]


def _broken_in(page: Path, root: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for target, anchor in _LINK.findall(text):
        linked = page.parent / target if target else page
        if not linked.exists():
            yield f"links to {target}, which is not there"
        elif anchor and anchor not in _anchors(linked):
            yield f"links to {target}{anchor}, a heading that is not there"
    for name in sorted(set(_FILE.findall(text))):
        if _find(root, name) is None:
            yield f"names the file {name}, which is not there"
    beside = {(name, file) for file, name in _NAME_AFTER_FILE.findall(text)}
    for name, file in sorted(beside | set(_NAME_BEFORE_FILE.findall(text))):
        found = _find(root, file)
        last = name.rpartition(".")[2]
        if found is not None and not re.search(rf"\b{last}\b", found.read_text(encoding="utf-8")):
            yield f"looks for {name} in {file}, which does not know it"


def _find(root: Path, name: str) -> Path | None:
    """A file by its path below the project or the package; by its bare name, wherever it is."""
    if "/" not in name:
        if name in _OWN_FILES:
            return root
        folders = (root / "headrace", root / "tests", root / "testkit", root / "tools")
        return next((file for folder in folders for file in folder.rglob(name)), None)
    for base in (root, root / "headrace"):
        if (base / name).is_file():
            return base / name
    return None


def _anchors(page: Path) -> set[str]:
    """Headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "#" + re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in headings
    }
