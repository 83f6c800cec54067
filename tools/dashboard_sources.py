"""Tells whether the built dashboard is of the sources in `dashboard/`, without building it.

`make dashboard` calls it with `--record` after a build: it writes hashes of all sources and of the built files beside
the latter. `make dashboard-check` compares; a change of the sources without a build fails, and one of the built files.
"""

import argparse
import gzip
import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ROOT / "dashboard"
BUILT: Final = ROOT / "headrace" / "rest" / "dashboard"
RECORD: Final = "build.sha256"
GZIPPED_BYTES_MAX: Final = 2 * 1024 * 1024
_NOT_BUILT: Final = re.compile(r"(^|/)(node_modules/|README\.md$)|\.test\.ts$|(^|/)testing\.ts$")
_ELSEWHERE: Final = re.compile(
    rb"""(?:src|href)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//|@import"""
)


def source_files(folder: Path) -> list[Path]:
    """List what a build is made from: everything but packages, tests and the text for readers."""
    return [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not _NOT_BUILT.search(file.relative_to(folder).as_posix())
    ]


def build_record(sources: Path, built: Path) -> str:
    """Return the hashes of the sources and of the built files, a line each."""
    of_sources = files_hash(sources, source_files(sources))
    of_built = files_hash(built, built_files(built))
    return f"{of_sources}  sources\n{of_built}  built\n"


def files_hash(folder: Path, files: Sequence[Path]) -> str:
    """Hash names and contents of files below a folder."""
    digest = hashlib.sha256()
    for file in files:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{content}  {file.relative_to(folder).as_posix()}\n".encode())
    return digest.hexdigest()


def built_files(folder: Path) -> list[Path]:
    """List the files that the wheel ships."""
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != RECORD]


def gzipped_bytes(folder: Path) -> int:
    """Add up the sizes of all built files, each compressed."""
    return sum(len(gzip.compress(file.read_bytes(), 9, mtime=0)) for file in built_files(folder))


def problems(sources: Path, built: Path) -> list[str]:
    """Say all that is wrong with the built files."""
    found: list[str] = []
    record = built / RECORD
    if not (built / "index.html").is_file() or not record.is_file():
        return [f"{built} holds no built dashboard: run make dashboard"]
    if record.read_text(encoding="ascii") != build_record(sources, built):
        found.append(f"{built} is not what was built of {sources}: run make dashboard")
    size = gzipped_bytes(built)
    if size > GZIPPED_BYTES_MAX:
        found.append(
            f"the dashboard has {size} bytes, gzipped; at most {GZIPPED_BYTES_MAX} are meant"
        )
    for file in built_files(built):
        if file.suffix in (".html", ".css") and _ELSEWHERE.search(file.read_bytes()):
            found.append(f"{file} loads something from another host")
    return found


def main() -> int:
    """Record the hash after a build, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="write the hashes")
    if parser.parse_args().record:
        (BUILT / RECORD).write_text(build_record(SOURCES, BUILT), encoding="ascii")
    found = problems(SOURCES, BUILT)
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        print(f"the dashboard is of its sources: {gzipped_bytes(BUILT):,} bytes, gzipped")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
