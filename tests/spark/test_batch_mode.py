"""BATCH mode on real Spark stages: retries, shuffles, output that is committed once, errors, and Ctrl-C."""

from pathlib import Path

import pytest

from tests.spark.programs import ROOT, Program, headrace_run, start_headrace

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAM = ROOT / "tests" / "spark" / "batch_program.py"
FACES = ROOT / "tests" / "spark" / "batch_faces_program.py"
DATAFRAMES = ROOT / "tests" / "spark" / "batch_dataframes_program.py"
ENDLESS_FUNCTION = """
import time
from headrace.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()

def wait(number):
    print("STARTED", flush=True)
    while True:
        time.sleep(0.1)

env.from_collection([1]).map(wait).print()
env.execute()
"""


def line_of(text: str, program: Path = PROGRAM) -> int:
    lines = program.read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_stages_run_again_and_output_is_committed_once(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    options = ["--master", "local-cluster[1,3,1024]", "-D", "execution.runtime-mode=BATCH"]
    program = start_headrace(tmp_path, "run", *options, str(PROGRAM), str(folder))
    started.append(program)
    assert program.wait(240) == 0, program.report()
    told = [line.strip() for line in program.out]
    assert "FAILED ONCE True" in told, program.report()
    assert "WRITTEN True 500" in told, program.report()
    assert "TOLD ['FINISHED'] [0, 1] [0, 1000]" in told, "what came with the attempts that count"
    assert [line for line in told if line.startswith("CONNECTED")] == [
        "CONNECTED first Row(Name='x', name=None, day=datetime.date(2024, 2, 29), price=Decimal('1.50'))",
        "CONNECTED first Row(Name='y', name='z', day=None, price=None)",
        "CONNECTED second 1",
        "CONNECTED second 2",
    ]
    assert "CALLED 10" in told, "functions run once, however many read what they give"
    assert "FROZEN True" in told, "collections of garbage do not walk through all modules"
    assert "PROCESSES True" in told, "three slots have three processes, whatever jobs they run"
    branches = sorted(
        line.rpartition("> ")[2] for line in told if "('even'" in line or "('sum'" in line
    )
    assert branches == [*(f"('even', {number})" for number in (0, 2, 4, 6, 8)), "('sum', 45)"]
    assert sorted(line.rpartition("> ")[2] for line in told if line[-1:] in "67") == ["6", "7"]
    (error,) = [line for line in told if line.startswith("ERROR")]
    assert (
        error.startswith("ERROR ZeroDivisionError")
        and f"{PROGRAM}, line {line_of('return 1 //')}" in error
    )
    program.assert_nothing_is_left()


def test_ctrl_c_ends_the_stages_of_a_job(tmp_path: Path, started: list[Program]) -> None:
    program = headrace_run(tmp_path, ENDLESS_FUNCTION, "-D", "execution.runtime-mode=BATCH")
    started.append(program)
    program.wait_for_line("STARTED", 150)
    program.interrupt()
    assert program.wait(60) == 130, program.report()
    program.assert_nothing_is_left()


def test_dataframes_are_part_of_the_plan_on_both_sides(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    options = ["--master", "local[2]", "-D", "execution.runtime-mode=BATCH"]
    program = start_headrace(tmp_path, "run", *options, str(DATAFRAMES), str(folder))
    started.append(program)
    assert program.wait(280) == 0, program.report()
    told = dict(line.strip().partition(" ")[::2] for line in program.out)
    assert told["FEW"] == str([(n, 2.0 * n) for n in range(10) if n != 3]), program.report()
    plan = [line for line in program.out if line.startswith("PLAN")]
    assert any("LessThan(id,10)" in line for line in plan), plan
    assert any("struct<id:bigint,half:double,name:string>" in line for line in plan), plan
    assert told["SHARES"] == "[0, 1] [0, 1, 2, 3, 4, 5]"
    assert told["ADAPTIVE"] == "1 [0, 1, 2, 3] 100", "subtasks stay apart, queries do not"
    newest = [(key, (4995 + key) * 1000 % 1_000_000) for key in range(5)]
    assert told["WRITTEN"] == f"{newest} BATCHES [(5000, 1)]"
    assert told["FILES"] == "['in', 'out']", "rows pass through no files of ours"
    assert told["LAZY"] == "True ['key', 'n'] 0", "nothing runs before somebody asks"
    assert told["JOINED"] == "[(0, 1000, 'zero'), (1, 1000, 'one')] 5000"
    assert told["ERROR"].startswith("ZeroDivisionError"), program.report()
    assert f"{DATAFRAMES}, line {line_of('return 1 //', DATAFRAMES)}" in told["ERROR"]
    program.assert_nothing_is_left()


def test_rest_shows_jobs_as_they_run_and_when_they_have_ended(
    tmp_path: Path, started: list[Program]
) -> None:
    folder = tmp_path / "files"
    (folder / "archives").mkdir(parents=True)
    options = {
        "execution.runtime-mode": "BATCH",
        "jobmanager.archive.fs.dir": str(folder / "archives"),
        "web.refresh-interval": "50 ms",
        "rest.port": "0",
    }
    given = [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    given += ["--master", "local[2]", "--progress"]
    # The program looks its own cluster up: those of programs beside it are not to be found.
    home = {"HEADRACE_HOME": str(tmp_path / "home")}
    arguments = ("run", *given, str(FACES), str(folder))
    program = start_headrace(tmp_path, *arguments, environment=home)
    started.append(program)
    assert program.wait(280) == 0, program.report()
    lines = [line.strip() for line in program.out]
    told = dict(line.partition(" ")[::2] for line in lines)
    # The collection's subtask has ended, two functions wait: their stage's producers came before.
    assert told["RUNNING"].startswith("RUNNING BATCH ['"), program.report()
    assert "'RUNNING'" in told["RUNNING"]
    vertices = [line.split()[-3:] for line in lines if line.startswith("VERTEX")]
    assert [one[0] for one in vertices] == ["FINISHED"] * len(vertices), vertices
    assert [(int(one[1]), int(one[2])) for one in vertices] == [(0, 100), (100, 100), (100, 0)]
    assert told["ENDED"] == "FINISHED {'Map.seen': 100.0}"
    assert told["PLAN"] == "[2, 2, 1]"
    assert "(1/2)" in told["EXCEPTION"] or "(2/2)" in told["EXCEPTION"], told["EXCEPTION"]
    assert f"{FACES}, line {line_of('return 1 //', FACES)}" in told["EXCEPTION"]
    assert "has no savepoints" in told["SAVEPOINT"]
    assert "'CANCELED'" in told["CANCELED"]
    assert told["ARCHIVED"] == "True"
    shown = [
        line for line in program.err if "RUNNING (" in line and "subtasks have finished" in line
    ]
    assert shown, program.report()
    program.assert_nothing_is_left()
