"""Class archive: Spark's classes in a JVM's memory format, stored once per machine, so that a driver starts sooner.

More than half of the time to start Spark goes into reading, checking and linking some eleven thousand classes. Java's
class data sharing keeps the outcome in a file. A JVM ignores the file if it was made with another Java, Spark or class
path, or is damaged.
Source: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyspark

from headrace.core.errors import HostError
from headrace.spark.session.java_runtime import JavaRuntime

TRAINING: Final = "headrace.spark.session.class_training"
_TRAINED_WITH: Final = "a job and Spark's page, started late"
"""Text that changes with the set of classes that the training has Spark load, as older archives lack some."""
_SUFFIX: Final = ".jsa"
_PREFIX: Final = "spark-classes-"
_JAVA_THAT_STORES_JARS_ONCE: Final = 19
_TIMEOUT_S: Final = 600


class ClassArchiveError(HostError):
    """The archive could not be created; the text names the failed step and the last line of its output."""

    def __init__(self, step: str, output: str) -> None:
        lines = [line for line in output.strip().splitlines() if line.strip()]
        super().__init__(f"{step} failed: {lines[-1] if lines else 'it printed nothing'}")


def class_archive(java: JavaRuntime, cache_directory: Path) -> Path:
    """Return the path of the archive for this Java and the installed Spark, whether it exists or not.

    A reinstalled Spark has another archive: Java rejects classes of jars that were written since.
    """
    spark = Path(pyspark.__file__)
    made_with = (
        f"{java.executable.resolve()} {java.major_version} "
        f"{pyspark.__version__} {spark} {spark.stat().st_mtime_ns} {_TRAINED_WITH}"
    )
    name = hashlib.sha256(made_with.encode()).hexdigest()[:16]
    return cache_directory / f"{_PREFIX}{name}{_SUFFIX}"


def class_archives(cache_directory: Path) -> Sequence[Path]:
    """Return all archives in a cache, including those of other installations."""
    return sorted(cache_directory.glob(f"{_PREFIX}*{_SUFFIX}"))


def java_options(archive: Path) -> str:
    """Return the options with which a JVM uses the archive; it ignores one that does not fit."""
    return shlex.join([f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"])


def store_class_archive(
    java: JavaRuntime, archive: Path, on_step: Callable[[str], None] = lambda _: None
) -> None:
    """Run a small job to see which classes Spark loads, and store them; takes up to a minute.

    The archive appears by one rename. `on_step` is called with the name of each step. Raises ClassArchiveError.
    """
    archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{archive.stem}-", dir=archive.parent) as name:
        class_list, made = Path(name) / "classes", Path(name) / archive.name
        on_step("Running a small job on Spark")
        training = [sys.executable, "-m", TRAINING, str(class_list)]
        printed = _run("the small job on Spark", training).splitlines()
        classes_from = _usable(json.loads(printed[-1])["class_path"], java)
        _refuse_folders(classes_from)
        on_step("Storing the classes that it loaded")
        _run(
            "storing classes",
            [
                str(java.executable),
                "-Xshare:dump",
                f"-XX:SharedClassListFile={class_list}",
                f"-XX:SharedArchiveFile={made}",
                *("-Xlog:disable", "-Xlog:all=error:stderr"),
                *("-cp", classes_from),
            ],
        )
        if not made.is_file():
            raise ClassArchiveError("storing classes", f"{java.executable} created no archive")
        share = [str(java.executable), "-Xshare:on", f"-XX:SharedArchiveFile={made}"]
        _run(
            f"starting Java {java.major_version} from it", [*share, "-cp", classes_from, "-version"]
        )
        # A JVM runs what it maps from there.
        made.chmod(0o600)
        os.replace(made, archive)


def _usable(class_path: str, java: JavaRuntime) -> str:
    """Return the part of the class path that an archive may contain: all, or the part before the first repeated jar.

    Spark lists one of its jars twice. Newer Javas store it once, and then reject the archive as one of another path.
    """
    entries = class_path.split(os.pathsep)
    if java.major_version < _JAVA_THAT_STORES_JARS_ONCE:
        return class_path
    again = (place for place, entry in enumerate(entries) if entry in entries[:place])
    return os.pathsep.join(entries[: next(again, None)])


def _refuse_folders(classes_from: str) -> None:
    for entry in map(Path, classes_from.split(os.pathsep)):
        if entry.is_dir() and any(entry.iterdir()):
            raise ClassArchiveError(
                "storing classes",
                f"Java stores no classes while a folder of the class path contains files, and {entry} does; Spark "
                f"keeps its configuration there (SPARK_CONF_DIR): use spark.* settings instead, or do without the "
                f"archive",
            )


def _run(step: str, command: Sequence[str]) -> str:
    """Run a command and return its output; ClassArchiveError names the step that failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClassArchiveError(step, str(error)) from error
    if done.returncode:
        raise ClassArchiveError(step, done.stderr or done.stdout)
    return done.stdout
