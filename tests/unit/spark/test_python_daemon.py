"""python_daemon: a fork looks for new files of a job without reading Spark's own archive again."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

PROGRAM: Final = """
import importlib, sys, zipimport
sys.path.insert(0, sys.argv[1])
import packed
from headrace.spark.python_daemon import keep_archive_of

read = []
zipimport._read_directory = lambda archive: read.append(archive) or {}
keep_archive_of("packed")
importlib.invalidate_caches()
assert read == [], "the contents were read again"
from packed import later
assert later.VALUE == 7
"""


def test_what_is_in_an_archive_is_not_read_again_and_the_rest_of_it_can_be_imported(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("packed/__init__.py", "")
        content.writestr("packed/later.py", "VALUE = 7\n")
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(archive)], capture_output=True, text=True, timeout=120
    )
    assert (told.returncode, told.stderr) == (0, "")
