"""python_daemon: a fork looks for new files of a job without reading Spark's own archives again."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

PROGRAM: Final = """
import importlib, sys, zipimport
sys.path[:0] = sys.argv[1:]
import packed, own
from headrace.spark.python_daemon import keep_archives_of

keep_archives_of("packed")
# Makes one more importer of the archive.
import packed.inner.first
read = []
read_directory = zipimport._read_directory
zipimport._read_directory = lambda archive: read.append(archive) or read_directory(archive)
importlib.invalidate_caches()
assert read == sys.argv[3:], read
from packed.inner import later
from own import added
assert (later.VALUE, added.VALUE) == (7, 7)
"""


def packed(archive: Path, *modules: str) -> str:
    """Make an archive of modules."""
    with zipfile.ZipFile(archive, "w") as content:
        for module in modules:
            content.writestr(module, "VALUE = 7\n")
    return str(archive)


def test_only_archives_that_are_not_sparks_are_read_again(tmp_path: Path) -> None:
    package = packed(
        tmp_path / "packed.zip",
        "packed/__init__.py",
        "packed/inner/__init__.py",
        "packed/inner/first.py",
        "packed/inner/later.py",
    )
    jar = packed(tmp_path / "classes.jar", "org/apache/spark/Spark.class")
    own = packed(tmp_path / "own.zip", "own/__init__.py", "own/added.py")
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, package, jar, own],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (told.returncode, told.stderr) == (0, "")
