from typing import Any

import pyarrow as pa
import pyarrow.acero as acero
import pytest

from headrace import StreamExecutionEnvironment, Types, col, lit
from headrace.api.columns.expressions import Expression
from headrace.api.streams.data_stream import DataStream
from headrace.core.errors import ProgramError
from tests.unit.api.recording import RecordingExecutor, spec_of

ROWS = pa.table(
    {
        "delay": pa.array([10, 40, None], pa.int32()),
        "distance": pa.array([2, 0, 4], pa.int32()),
        "origin": ["EWR", "JFK", None],
    }
)
TYPE = Types.ROW_NAMED(["delay", "distance", "origin"], [Types.INT(), Types.INT(), Types.STRING()])


def value_of(expression: Expression) -> list[Any]:
    plan = acero.Declaration.from_sequence(
        [
            acero.Declaration("table_source", acero.TableSourceNodeOptions(ROWS)),
            acero.Declaration("project", acero.ProjectNodeOptions([expression.to_arrow()], ["x"])),
        ]
    )
    return plan.to_table(use_threads=False).column("x").to_pylist()


def stream(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([(1, 2, "EWR")], TYPE)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("delay") + 1, [11, 41, None]),
        (1 - col("delay"), [-9, -39, None]),
        (col("delay") * 2 - col("distance"), [18, 80, None]),
        (col("delay") / 4, [2.5, 10.0, None]),
        (1 / col("distance"), [0.5, float("inf"), 0.25]),
        (-col("delay"), [-10, -40, None]),
        ((col("delay") - 20).abs(), [10, 20, None]),
        (col("delay") > 15, [False, True, None]),
        (col("delay") < 15, [True, False, None]),
        (col("delay") == 10, [True, False, None]),
        (col("delay") != 10, [False, True, None]),
        (col("delay").between(10, 30), [True, False, None]),
        ((col("delay") > 15) | (col("distance") > 3), [False, True, True]),
        (~(col("delay") > 15) & (col("distance") > 0), [True, False, None]),
        (col("delay").is_null(), [False, False, True]),
        (col("delay").is_not_null(), [True, True, False]),
        (col("delay").fill_null(0), [10, 40, 0]),
        (col("origin").is_in(["JFK", "LGA"]), [False, True, None]),
        (col("delay").cast(Types.STRING()), ["10", "40", None]),
        (lit("x"), ["x", "x", "x"]),
    ],
)
def test_expressions_mean_what_python_and_sql_mean(expression: Expression, expected: Any) -> None:
    assert value_of(expression) == expected


def test_select_infers_types_and_keeps_names(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    selected = stream(env).select(
        "origin",
        (col("delay") / col("distance")).alias("pace"),
        late=col("delay") > 15,
        one=lit(1),
    )
    assert str(selected.get_type()) == (
        "RowTypeInfo(origin: String, pace: Double, late: Boolean, one: Long)"
    )
    selected.print()
    env.execute_async()
    names = [name for name, _ in spec_of(executor.last, "Select").expressions]
    assert names == ["origin", "pace", "late", "one"]


def test_filter_takes_an_expression_and_keeps_the_type(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    kept = stream(env).filter((col("delay") > 15) & col("origin").is_not_null())
    assert kept.get_type() == TYPE
    kept.print()
    env.execute_async()
    assert spec_of(executor.last, "Filter").kind == "filter_expression"


def test_mistakes_name_the_expression_and_the_columns(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(
        ProgramError,
        match=r"filter\(\(dely > 3\)\) does not fit the columns delay: int32, .*: there is no column 'dely'",
    ):
        stream(env).filter(col("dely") > 3)
    with pytest.raises(ProgramError, match="is of type int32"):
        stream(env).filter(col("delay") + 1)
    with pytest.raises(ProgramError, match="no kernel matching input types"):
        stream(env).select(x=col("origin") * 2)
    with pytest.raises(ProgramError, match="name the result of"):
        stream(env).select(col("delay") + 1)
    with pytest.raises(ProgramError, match="makes the column 'delay' twice"):
        stream(env).select("delay", delay=col("distance"))
    with pytest.raises(ProgramError, match="select needs a column"):
        stream(env).select()
    with pytest.raises(ProgramError, match="the type of this one is not declared"):
        env.from_collection([1]).filter(col("value") > 3)


def test_an_expression_has_no_truth_of_its_own() -> None:
    with pytest.raises(TypeError, match=r"use &, \| and ~ instead"):
        bool((col("a") > 1) and (col("b") > 1))
