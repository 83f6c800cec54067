"""Queries of Spark over checkpoints that a job gives up meanwhile."""

import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.checkpoint.retention.cleaner import CheckpointCleaner
from headrace.checkpoint.retention.completed_store import Deletion
from headrace.checkpoint.retention.leases import live_leases
from headrace.checkpoint.storage.file_systems import is_there
from headrace.core.clock import SystemClock
from headrace.core.threads import start_thread
from headrace.spark.session.session import HostSession
from testkit.waiting import wait_until
from tests.unit.state_processor.saved import FILES, UID, savepoint, settings_in

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
WAIT_S = 60


class Job:
    """Checkpoints 7 and 8, and the cleaner of the job, which gives 7 up."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder / "job", folder / "key"
        for number in (7, 8):
            savepoint(self.folder / f"chk-{number}", settings_in(folder, **FILES))
        self.old = str(self.folder / "chk-7")
        self._cleaner = CheckpointCleaner(1, start=lambda _, body: body())

    def read(self, spark: SparkSession, **options: str) -> DataFrame:
        reader = spark.read.format("headrace-state").option("path", str(self.folder))
        reader = reader.option("checkpoint", "7").option("keyFile", str(self.key))
        return reader.options(operator=UID, state="count", **options).load()

    def give_up(self) -> None:
        self._cleaner.delete(Deletion(7, self.old))

    def lease_count(self) -> int:
        return len(live_leases(self.old, SystemClock().now_ms()))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_query_finds_its_files_and_then_they_go(session: HostSession, job: Job) -> None:
    counts = job.read(session.spark, leaseDuration="10 s")
    job.give_up()
    assert sorted(row["key"] for row in counts.collect()) == [0, 1, 2, 3, 4, 5]
    assert counts.join(counts, "key").count() == 6
    assert job.lease_count() == 1
    job.give_up()
    assert is_there(job.old)
    wait_until(lambda: job.lease_count() == 0)
    job.give_up()
    assert not is_there(job.old)
    with pytest.raises(PySparkException, match="the oldest one left is 8"):
        counts.collect()


def test_the_lease_of_a_query_that_was_killed_ends_and_its_files_go(
    session: HostSession, job: Job, tmp_path: Path
) -> None:
    """All slots are taken, so that the query is planned, waits, and is canceled before it reads."""
    spark, release = session.spark, tmp_path / "release"
    context = spark.sparkContext

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (tmp_path / f"taken-{os.getpid()}").touch()
        while not release.exists():
            threading.Event().wait(0.02)
        yield from batches

    def block() -> None:
        spark.range(0, 4, numPartitions=4).mapInArrow(wait, "id long").collect()

    def query() -> None:
        context.addJobTag("reader")
        try:
            counts.collect()
        except (PySparkException, Py4JJavaError) as error:
            errors.append(error)

    errors: list[Exception] = []
    counts = job.read(spark, leaseDuration="8 s")
    blocker = start_thread("blocker", block)
    try:
        wait_until(lambda: len(list(tmp_path.glob("taken-*"))) == 4)
        start_thread("reader", query)
        # That of the blocker, and that of the query: its partitions are planned.
        wait_until(lambda: len(context.statusTracker().getActiveJobsIds()) == 2)

        def is_canceled() -> bool:
            context.cancelJobsWithTag("reader")
            return bool(errors)

        job.give_up()
        assert is_there(job.old)
        wait_until(is_canceled)
        wait_until(lambda: job.lease_count() == 0)
        job.give_up()
        assert not is_there(job.old)
    finally:
        release.touch()
    blocker.join(WAIT_S)
