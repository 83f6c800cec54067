"""The guides: the Python blocks of a page run one after the other and print what stands below them."""

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.architecture.documents import PythonBlock, python_blocks

pytestmark = pytest.mark.integration

PAGES = {
    document: [block for block in blocks if not block.is_program]
    for document, blocks in groupby(
        (block for block in python_blocks() if block.is_in_a_guide), lambda block: block.document
    )
}


def run_block(block: PythonBlock, names: dict[str, Any]) -> None:
    """Run a block as a program of its own would, with the names of the blocks before it."""
    # Lines of tracebacks are those of the page.
    code = "\n" * block.line + block.code
    exec(compile(code, block.document, "exec"), names)


@pytest.mark.parametrize("document", PAGES)
def test_the_blocks_of_a_guide_print_what_it_says(
    document: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # Functions and classes of a program travel by value.
    names: dict[str, Any] = {"__name__": "__main__"}
    with MiniClusterExecutor(slot_count=2):
        for block in PAGES[document]:
            run_block(block, names)
            printed = capsys.readouterr().out
            if block.outcome:
                assert printed.strip() == block.outcome.strip(), f"line {block.line}"
            else:
                assert not printed, f"line {block.line} prints, and the page does not show it"


def test_every_guide_has_code_that_runs() -> None:
    assert len(PAGES) == 13
    assert [document for document, blocks in PAGES.items() if not blocks] == []
