"""Loads in Spark's JVM the classes that jobs load, and writes their names.

    python -m headrace.spark.session.class_training FILE

Prints the class path of that JVM as JSON.
"""

import contextlib
import json
import shlex
import sys

from headrace.api.environment import StreamExecutionEnvironment
from headrace.api.executors import default_settings
from headrace.core.config import Settings
from headrace.spark.session.jvm import class_path
from headrace.spark.session.session import host_session
from headrace.spark.session.web_page import WebPageError


def main(class_list: str) -> None:
    """Run a job over rows of a DataFrame, and start Spark's web page."""
    options = shlex.quote(f"-XX:DumpLoadedClassList={class_list}")
    settings = {"spark.driver.extraJavaOptions": options, **default_settings()}
    session = host_session(Settings(settings))
    if session.page is not None:
        # If it cannot start, no session loads its classes either.
        with contextlib.suppress(WebPageError):
            session.page.address()
    spark = session.spark
    rows = spark.createDataFrame([(1, "one"), (2, "two")], "number long, word string")
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.set_parallelism(1)
    with environment.from_dataframe(rows).execute_and_collect("training") as collected:
        if sum(1 for _ in collected) != rows.count():
            raise RuntimeError("the job lost rows")
    sys.stdout.write(json.dumps({"class_path": class_path(spark.sparkContext)}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
