"""The programs of the documents run as they stand and print what stands below them."""

from pathlib import Path

import pytest

from tests.architecture.documents import PythonBlock, python_blocks
from tests.spark.programs import Program, headrace_run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PROGRAMS = [block for block in python_blocks() if block.is_program]


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: f"{block.document}:{block.line}")
def test_a_program_prints_what_the_document_says(
    tmp_path: Path, started: list[Program], block: PythonBlock
) -> None:
    assert block.outcome, "the document shows no outcome"
    # The documents show a machine with two processors.
    program = headrace_run(tmp_path, block.code, "--parallelism", "2")
    started.append(program)
    assert program.wait() == 0, program.report()
    assert "".join(program.out).strip() == block.outcome.strip()
    program.assert_nothing_is_left()
