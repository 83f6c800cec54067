"""StaticFiles: serves the dashboard's files, which are read once."""

import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fastapi import Request, Response

_INDEX: Final = "index.html"
_WITHOUT_DASHBOARD: Final = (
    b"<!doctype html><title>Headrace</title><p>This build has no dashboard; REST answers below /overview, /jobs and "
    b"so on."
)


OWN_PAGE: Final = "/headrace"
"""Path of Headrace's dashboard if another one is served at `/`; its files are next to it in both cases."""


class StaticFiles:
    """All files below `folder`, by the path of their address.

    `replacement`: the folder of another dashboard; Headrace's own is at OWN_PAGE then.
    """

    def __init__(self, folder: Path, replacement: Path | None = None) -> None:
        self._files: Final = {"/": (_WITHOUT_DASHBOARD, "text/html")} | _files_below(folder)
        if replacement is not None:
            self._files[OWN_PAGE] = self._files["/"]
            self._files.update(_files_below(replacement))

    @property
    def paths(self) -> Sequence[str]:
        """Return the paths of all files."""
        return tuple(self._files)

    def has(self, path: str) -> bool:
        """Return whether there is a file at a path."""
        return path in self._files

    async def answer(self, request: Request) -> Response:
        """Return the file of the path."""
        content, media_type = self._files[request.url.path]
        # Names of built files contain a hash of their content; the page refers to them.
        is_built = request.url.path.startswith("/assets/")
        caching = "max-age=31536000, immutable" if is_built else "no-cache"
        return Response(content, media_type=media_type, headers={"cache-control": caching})


def _files_below(folder: Path) -> dict[str, tuple[bytes, str]]:
    """Return content and media type of all files, by path; the start page at `/` too."""
    found: dict[str, tuple[bytes, str]] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix not in (".py", ".sha256"):
            media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            found[f"/{file.relative_to(folder).as_posix()}"] = (file.read_bytes(), media_type)
    index = found.get(f"/{_INDEX}")
    return found if index is None else {"/": index, **found}
