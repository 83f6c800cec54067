"""The programs of the documents run as they stand and print what stands below them."""

import json
from pathlib import Path

import pytest

from tests.architecture.documents import PythonBlock, python_blocks
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

# One after another in one Spark application, where each takes its own seconds and not those of another JVM.
EACH = """
import contextlib, io, json, runpy
from testkit.waiting import wait_until

with open("programs.json") as file:
    programs = json.load(file)
for name, line_count in programs.items():
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(name, run_name="__main__")
        # Lines of workers come through a pipe, and may come after their job's end.
        wait_until(lambda: len(printed.getvalue().splitlines()) >= line_count, 30, f"lines of {name}")
    print(json.dumps([name, printed.getvalue()]))
"""


def file_of(block: PythonBlock) -> str:
    return f"{block.document.replace('/', '_')}_{block.line}.py"


def test_programs_print_what_the_documents_say(tmp_path: Path, started: list[Program]) -> None:
    blocks = {file_of(block): block for block in python_blocks() if block.is_program}
    assert len(blocks) > 3
    assert [name for name, block in blocks.items() if not block.outcome] == [], "no outcome shown"
    for name, block in blocks.items():
        (tmp_path / name).write_text(block.code)
    line_counts = {name: len(one.outcome.strip().splitlines()) for name, one in blocks.items()}
    (tmp_path / "programs.json").write_text(json.dumps(line_counts))
    # The documents show a machine with two processors.
    program = headrace_run(tmp_path, EACH, "--parallelism", "2")
    started.append(program)
    assert program.wait(300) == 0, program.report()
    printed = dict(map(json.loads, program.out))
    assert {name: text.strip() for name, text in printed.items()} == {
        name: block.outcome.strip() for name, block in blocks.items()
    }
    program.assert_nothing_is_left()
