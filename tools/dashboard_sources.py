"""Tells whether the built dashboard is of the sources in `dashboard/`, without building it.

`make dashboard` calls it with `--record` after a build: it writes a hash of all sources beside the built files. `make
dashboard-check` compares; a change of the sources without a build fails.
"""

import argparse
import gzip
import hashlib
import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ROOT / "dashboard"
BUILT: Final = ROOT / "headrace" / "rest" / "dashboard"
RECORD: Final = "sources.sha256"
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


def sources_hash(folder: Path) -> str:
    """Hash names and contents of all sources."""
    digest = hashlib.sha256()
    for file in source_files(folder):
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
    if record.read_text(encoding="ascii").strip() != sources_hash(sources):
        found.append(f"{built} is not of the sources in {sources}: run make dashboard")
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
    parser.add_argument("--record", action="store_true", help="write the hash of the sources")
    if parser.parse_args().record:
        (BUILT / RECORD).write_text(sources_hash(SOURCES) + "\n", encoding="ascii")
    found = problems(SOURCES, BUILT)
    for problem in found:
        print(problem, file=sys.stderr)
    if not found:
        print(f"the dashboard is of its sources: {gzipped_bytes(BUILT):,} bytes, gzipped")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
