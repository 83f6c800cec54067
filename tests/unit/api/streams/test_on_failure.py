"""on_failure: what becomes of records on which a user's function raises."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace import FailurePolicy, OutputTag, Row, StreamExecutionEnvironment, Types
from headrace.api.function_checks import guarded_spec
from headrace.core.errors import ProgramError
from headrace.core.operator_spec import OperatorSpec
from headrace.core.types.type_info import TypeInformation
from headrace.functions.process import ProcessFunction
from headrace.functions.specs.operator_specs import (
    FilterSpec,
    FlatMapSpec,
    MapSpec,
    PrintSinkSpec,
    ProcessSpec,
)
from headrace.testing.operator_harness import OperatorHarness, Rows

PICKLED = Types.PICKLED_BYTE_ARRAY()
NUMBERS = OutputTag("numbers", Types.LONG())
POISON = OutputTag("poison", PICKLED)


def half_then_raise(text: str) -> Iterator[int]:
    yield 0
    yield int(text)


class Parse(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[int]:
        yield int(value)


def run(
    spec: OperatorSpec,
    tag: OutputTag | None,
    output_type: TypeInformation = PICKLED,
) -> OperatorHarness:
    harness = OperatorHarness(
        guarded_spec(spec, "parse", tag, is_keyed=False),
        output_type=output_type,
        side_types={} if tag is None else {tag.tag_id: tag.type_info},
    )
    harness.process(harness.batch(Rows(["1", "two", "3"])))
    return harness


def rows(elements: list[tuple[Any, ...]]) -> list[Any]:
    return [element[1] for element in elements if element[0] == "row"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (MapSpec(int), [1, 3]),
        (FilterSpec(lambda text: int(text) > 1), ["3"]),
        (FlatMapSpec(half_then_raise), [0, 1, 0, 3]),
        (ProcessSpec(Parse()), [1, 3]),
    ],
)
def test_a_record_on_which_the_function_raises_is_skipped_and_counted(
    spec: OperatorSpec, expected: list[Any]
) -> None:
    harness = run(spec, None)
    assert rows(harness.output.main) == expected
    assert harness.metrics.snapshot()["numRecordsFailed"] == 1


def test_a_record_set_aside_comes_with_its_error_and_nothing_else_of_it_is_kept() -> None:
    harness = run(FlatMapSpec(half_then_raise), POISON)
    assert rows(harness.output.main) == [0, 1, 0, 3]
    ((record, error),) = rows(harness.output.sides["poison"])
    assert record == "two"
    assert error.startswith("ValueError: invalid literal for int()")


MISFITS: list[tuple[TypeInformation, Any, Any]] = [
    (Types.LONG(), 1, "one"),
    (Types.LONG(), 1, 1.5),
    (Types.DOUBLE(), 1.5, "one"),
    (Types.BOOLEAN(), True, "yes"),
    (Types.STRING(), "naïve", 5),
    (Types.STRING(), "plain", "half a pair \ud800"),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), (1, "a"), (1, 2)),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), (1, "a"), (1, "a", 3)),
    (Types.ROW_NAMED(["n"], [Types.LONG()]), Row(n=1), Row(n="one")),
    (Types.LIST(Types.LONG()), [1], ["one"]),
]


@pytest.mark.parametrize(("declared", "good", "bad"), MISFITS)
def test_a_result_that_does_not_fit_its_declared_type_is_skipped_and_counted(
    declared: TypeInformation, good: Any, bad: Any
) -> None:
    made = {"1": good, "two": bad, "3": good}
    harness = run(MapSpec(made.get), None, declared)
    assert rows(harness.output.main) == [good, good]
    assert harness.metrics.snapshot()["numRecordsFailed"] == 1


def test_of_a_record_with_one_result_that_does_not_fit_nothing_is_kept() -> None:
    made = {"1": [1, 10], "two": [2, "twenty", 200], "3": [3]}
    harness = run(FlatMapSpec(made.get), POISON, Types.LONG())
    assert rows(harness.output.main) == [1, 10, 3]
    ((record, error),) = rows(harness.output.sides["poison"])
    assert record == "two"
    assert error.startswith("RecordTypeError: ") and "twenty" in error


def test_results_that_their_type_takes_after_a_second_look_are_kept() -> None:
    made = {"1": None, "two": np.int64(2), "3": np.int8(3)}
    harness = run(MapSpec(made.get), None, Types.LONG())
    assert rows(harness.output.main) == [None, 2, 3]
    assert harness.metrics.snapshot()["numRecordsFailed"] == 0


class ToSide(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield NUMBERS, value if value == "two" else int(value)


def test_a_result_that_does_not_fit_its_side_output_sets_its_record_aside() -> None:
    spec = guarded_spec(ProcessSpec(ToSide()), "parse", POISON, is_keyed=False)
    sides = {"poison": POISON.type_info, "numbers": Types.LONG()}
    harness = OperatorHarness(spec, side_types=sides)
    harness.process(harness.batch(Rows(["1", "two", "3"])))
    assert rows(harness.output.sides["numbers"]) == [1, 3]
    assert [record for record, _ in rows(harness.output.sides["poison"])] == ["two"]


def test_operators_without_single_records_refuse_it() -> None:
    with pytest.raises(ProgramError, match="'out' cannot skip single records"):
        guarded_spec(PrintSinkSpec(None), "out", None, is_keyed=False)


def test_it_is_said_once() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection(["1"]).map(int).on_failure(FailurePolicy.SKIP)
    with pytest.raises(ProgramError, match="already has an on_failure policy"):
        stream.on_failure(FailurePolicy.SKIP)


@pytest.mark.parametrize("wrong", ["SKIP", None, 5])
def test_nothing_else_is_taken_for_a_policy(wrong: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(TypeError, match=rf"FailurePolicy\.SKIP or an OutputTag, not {wrong!r}"):
        env.from_collection(["1"]).map(int).on_failure(wrong)


def test_fail_changes_nothing() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection(["1"]).map(int).on_failure(FailurePolicy.FAIL).print()
    assert any(isinstance(node.spec, MapSpec) for node in env.get_stream_graph().nodes)
