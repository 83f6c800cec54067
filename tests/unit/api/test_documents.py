"""Python blocks of the documents: programs, which tests/spark runs, parts of guides, and fragments, built here."""

import ast

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.common import Types
from tests.architecture.documents import PythonBlock, python_blocks

BLOCKS = list(python_blocks())
FRAGMENTS = [block for block in BLOCKS if not block.is_program and not block.is_in_a_guide]


def test_the_documents_are_found() -> None:
    programs = [block.document for block in BLOCKS if block.is_program]
    assert programs == [
        "README.md",
        "docs/batch.md",
        "docs/cached_streams.md",
        "docs/getting_started/pyspark.md",
        "docs/how_to/foreach_batch.md",
        "docs/how_to/foreach_batch.md",
        "docs/streaming_dataframes.md",
    ]


@pytest.mark.parametrize("block", FRAGMENTS, ids=lambda block: f"{block.document}:{block.line}")
def test_a_fragment_builds_its_part_of_a_graph(
    block: PythonBlock, env: StreamExecutionEnvironment
) -> None:
    numbers = env.from_collection([1, 2, 3], type_info=Types.LONG())
    names = {"Types": Types, "env": env, "numbers": numbers}
    exec(compile(ast.parse(block.code), block.document, "exec"), names)
    graph = env.get_stream_graph("fragment")
    assert len(graph.nodes) > 1, "the fragment adds nothing to the stream it was given"
