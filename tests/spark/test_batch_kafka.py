"""Kafka in BATCH mode on real Spark, and output that a job prepares and never commits."""

from pathlib import Path

import pytest

from tests.integration.kafka.mock_cluster import running_cluster, send
from tests.spark.programs import ROOT, Program, start_headrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(700)]

PROGRAM = ROOT / "tests" / "spark" / "batch_kafka_program.py"
COUNT = 20_011


@pytest.mark.long
def test_each_record_is_written_once_and_nothing_stays_of_jobs_that_do_not_commit(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    options = {
        "execution.runtime-mode": "BATCH",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }
    given = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    with running_cluster("numbers", "exact", "plain", "calm", "doomed") as servers:
        send(servers, "numbers", [str(number) for number in range(COUNT)])
        arguments = ("--master", "local-cluster[2,2,1024]", *given, str(PROGRAM), str(folder))
        path = {"PYTHONPATH": str(ROOT)}
        program = start_headrace(tmp_path, "run", *arguments, servers, environment=path)
        started.append(program)
        assert program.wait(650) == 0, program.report()
    lines = [line.strip() for line in program.out]
    for line in (
        "FAULTS True True True",
        f"EXACT True True {COUNT}",
        "PLAIN True",
        "STAGED []",
        f"CALM True True {COUNT}",
        "FAILED LEFT [] [] []",
        "PREPARED True True",
        "CANCELED LEFT [] [] []",
        "WRITING LEFT []",
        "LATE FINISHED ['a', 'b']",
    ):
        assert line in lines, program.report()
    endless, failed, cancelled = (line for line in lines if line.startswith(("ENDLESS", "ERROR")))
    assert "BATCH mode needs bounded sources, but 'Source: endless' has no end" in endless
    assert failed.startswith("ERROR ValueError: every attempt fails (in operator 'Sink: FileSink'")
    assert cancelled.endswith("was cancelled")
    program.assert_nothing_is_left()
