"""A Spark home of a session's own: Spark's installation by links, and a `work` folder that ends with the session.

The workers of `local-cluster` obey no setting here: executors' directories are in `work` of the driver's SPARK_HOME.
Source: https://github.com/apache/spark, core/src/main/scala/org/apache/spark/deploy/worker/Worker.scala
"""

from pathlib import Path
from typing import Final

WORK: Final = "work"


def link_spark_home(installed: Path, home: Path) -> None:
    """Make `home` a Spark home with everything of `installed` but what executors have left there.

    Raises OSError where `home` exists already or cannot be made.
    """
    home.mkdir()
    for entry in installed.resolve().iterdir():
        if entry.name != WORK:
            (home / entry.name).symlink_to(entry)
