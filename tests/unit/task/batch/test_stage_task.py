"""Programs in BATCH mode give what a plain model of them gives, whatever the parallelism and the size of batches."""

import tempfile
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import StreamExecutionEnvironment
from headrace.common import Types
from headrace.core.errors import UserCodeError
from tests.unit.api.recording import recording
from tests.unit.task.batch.local_stages import LocalStages
from tests.unit.task.batch.modelled_functions import EVENT, Event, keep, results
from tests.unit.task.batch.modelled_programs import (
    CASES,
    Program,
    multiset,
    timed,
)

events = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), min_size=1, max_size=40)


def run(
    program: Program, first: list[Event], second: list[Event], parallelism: int, batch_rows: int
) -> list[Any]:
    results.clear()
    with recording(4) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism)
        program.stream(env, first, second).map(keep).set_parallelism(1).print()
        env.execute_async()
        graph = executor.last
    LocalStages(graph, batch_rows).run()
    return results.copy()


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=10)
@given(data=st.data())
def test_a_program_gives_what_its_model_gives(name: str, data: st.DataObject) -> None:
    first, second = data.draw(events), data.draw(events)
    parallelism, batch_rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 50))
    program = Program(name)
    found = run(program, first, second, parallelism, batch_rows)
    assert multiset(found) == multiset(program.expected(first, second))


@pytest.mark.parametrize(("managed", "run_count"), [("0", 2), ("40 mb", 1), ("200 mb", 0)])
def test_rows_that_are_sorted_in_memory_are_as_many_as_managed_memory_allows(
    managed: str, run_count: int
) -> None:
    def keyed(number: int) -> tuple[int, bytes]:
        return number, bytes(1 << 20)

    with recording(1) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.configure({"taskmanager.memory.managed.size": managed})
        env.set_parallelism(1)
        keyed_type = Types.TUPLE([Types.INT(), Types.PRIMITIVE_ARRAY(Types.BYTE())])
        rows = env.from_collection(list(range(41)), Types.INT()).map(keyed, keyed_type)
        grouped = rows.key_by(lambda row: row[0], Types.INT())
        grouped.map(lambda row: row[0], Types.INT()).print()
        env.execute_async()
        graph = executor.last
    with patch.object(tempfile, "TemporaryFile", wraps=tempfile.TemporaryFile) as made:
        LocalStages(graph).run()
    assert made.call_count == run_count


def test_an_error_names_the_operator_and_the_function_s_line() -> None:
    def divide(event: Event) -> Any:
        return event[0] // 0

    with recording(1) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        timed(env, [(1, 1)]).map(divide, EVENT).print()
        env.execute_async()
        graph = executor.last
    with pytest.raises(UserCodeError, match=r"ZeroDivisionError.*test_stage_task.py, line \d+"):
        LocalStages(graph, 5).run()
