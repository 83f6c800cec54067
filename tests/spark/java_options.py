"""Options of the JVMs that tests start: their first compiler alone, and Spark's classes from an archive.

A job of three records needs 12 seconds of processor with the first compiler and 18 with both, and hardly a test lasts
long enough for what the second one makes. An executor needs 2.5 seconds with both options and 8 with neither.
"""

import functools
import os
from typing import Final

from headrace.spark.session.class_archive import class_archive, java_options
from headrace.spark.session.java_runtime import find_java, user_cache_directory

FIRST_COMPILER: Final = "-XX:TieredStopAtLevel=1"


@functools.cache
def executor_java_options() -> str:
    """Options for executors, masters and workers, with the archive of `headrace warm-up` where there is one.

    Drivers take it by themselves.
    """
    cache = user_cache_directory(os.environ)
    archive = class_archive(find_java(os.environ, cache), cache)
    return f"{FIRST_COMPILER} {java_options(archive)}" if archive.is_file() else FIRST_COMPILER


def settings_of_executors(master: str) -> tuple[str, ...]:
    """Options of `headrace` for executors of a `local-cluster`; those of a standalone cluster inherit the worker's."""
    if not master.startswith("local-cluster"):
        return ()
    # Options of the command line stand in place of those that a session has for executors.
    options = f"-Djava.io.tmpdir=. -XX:-UsePerfData {executor_java_options()}"
    return ("-D", f"spark.executor.extraJavaOptions={options}")
