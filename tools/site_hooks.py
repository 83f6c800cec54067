"""Hooks of MkDocs: pages from outside docs/, links for the site, and no file of another host.

README.md becomes the front page; CHANGELOG.md, CONTRIBUTING.md and the examples become pages. Their links are rewritten
to where the pages are on the site; a link to a file that is not on the site becomes its name.
"""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES_OF_THE_ROOT: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_LOADED: Final = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"'](?:https?:)?//[^\"']*"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^\s\"'>]*",
    re.IGNORECASE,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the folders in the navigation by their pages."""
    folders = {"adr/": adr_pages(), "examples/": [name for name, _ in example_pages()]}
    assert config.nav is not None
    config.nav = [expanded(entry, folders) for entry in config.nav]
    return config


def expanded(entry: Any, folders: dict[str, list[str]]) -> Any:
    """Return an entry of the navigation with pages in place of each folder."""
    if not isinstance(entry, dict):
        return entry
    return {
        title: [expanded(one, folders) for one in value]
        if isinstance(value, list)
        else folders.get(value, value)
        for title, value in entry.items()
    }


def adr_pages() -> list[str]:
    """Return the pages of the decisions, in the order of their numbers."""
    return sorted(f"adr/{path.name}" for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))


def example_pages() -> list[tuple[str, str]]:
    """Return name and text of a page for each example: its docstring, then its code."""
    pages: list[tuple[str, str]] = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        said = ast.get_docstring(ast.parse(code)) or ""
        title, _, more = said.partition("\n")
        # A docstring may hold drawings and commands: it stands as it is, in a block.
        shown = f"```text\n{more.strip()}\n```\n\n" if more.strip() else ""
        text = f"# {path.name}\n\n{title}\n\n{shown}```python\n{code}```\n"
        pages.append((f"examples/{path.stem}.md", text))
    return pages


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for source, name in PAGES_OF_THE_ROOT.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text))
    for name, text in example_pages():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead each link to a page of the site, or leave its text."""
    name = page.file.src_uri
    from_root = name in PAGES_OF_THE_ROOT.values()
    # The folder of the repository that links of this page start from.
    folder = "" if from_root else posixpath.join("docs", posixpath.dirname(name))
    here = posixpath.dirname(name)

    def on_site(match: re.Match[str]) -> str:
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if (ROOT / path).is_dir():
            inside = posixpath.relpath(path, "docs")
            candidates = [file.src_uri for file in files if file.src_uri.startswith(inside + "/")]
            place = min(candidates, default="")
        elif path in PAGES_OF_THE_ROOT:
            place = PAGES_OF_THE_ROOT[path]
        elif re.fullmatch(r"examples/\w+\.py", path):
            place = path.removesuffix(".py") + ".md"
        elif path.startswith("docs/"):
            place = path.removeprefix("docs/")
        else:
            place = ""
        if not place:
            return text if text.startswith("`") else f"{text} (`{path}`)"
        return f"[{text}]({posixpath.relpath(place, here or '.')}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(on_site, part) for part in parts)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Fail where a page of the site would load something from another host."""
    site = Path(config.site_dir)
    found = [
        f"{path.relative_to(site)}: {loaded}"
        for path in sorted(site.rglob("*.html"))
        for loaded in _LOADED.findall(path.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("loaded from another host:\n" + "\n".join(found))
