"""What streams say of themselves in notebooks, and results that are refused before anything runs."""

from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.api.client.program_end import unexecuted_operator
from headrace.api.executors import PREVIEW_SETTINGS, settings_for_cluster
from headrace.api.streams import stream_results
from headrace.api.streams.stream_results import StreamPreview, stream_html
from headrace.checkpoint.options import INTERVAL, RECOVERY_PATH
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.types.rows import Row
from headrace.graph.pipeline_options import IS_PREVIEW, runs_in_batch
from tests.unit.api.recording import RecordingExecutor, operators


def test_a_stream_shows_its_columns_and_its_plan(env: StreamExecutionEnvironment) -> None:
    row_type = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
    people = env.from_collection([Row("Ann", 3)], row_type).filter(lambda _: True).name("<old>")
    page = stream_html(people)
    assert "<td>age</td><td>Integer</td>" in page
    assert "Source: Collection Source" in page and "&lt;old&gt;" in page and "<old>" not in page


def test_the_page_of_a_stream_shows_nothing_of_other_streams(
    env: StreamExecutionEnvironment,
) -> None:
    numbers = env.from_collection([1], Types.INT()).name("numbers")
    numbers.map(str).name("other").print()
    assert "other" not in stream_html(numbers)


def test_a_mistake_takes_the_place_of_the_plan(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(stream: Any) -> str:
        raise ProgramError("two operators have the uid <x>")

    monkeypatch.setattr(env, "explain_stream", refuse)
    assert "the uid &lt;x&gt;" in stream_html(env.from_collection([1]))


def test_showing_a_stream_leaves_the_program_unexecuted(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1], Types.INT())
    sink = numbers.print()
    stream_html(numbers)
    assert unexecuted_operator() is sink._operator()  # pyright: ignore[reportPrivateUsage]


def test_a_preview_runs_what_makes_the_stream_and_keeps_the_program(
    env: StreamExecutionEnvironment, executor: RecordingExecutor
) -> None:
    keyed = env.from_collection([1], Types.INT()).key_by(lambda n: n, Types.INT())
    sink = keyed.map(str).print()
    env.preview_stream(keyed)
    assert "Sink: Print to Std. Out" not in operators(executor.last)
    assert unexecuted_operator() is sink._operator()  # pyright: ignore[reportPrivateUsage]
    env.execute_async("all of it")
    assert "Sink: Print to Std. Out" in operators(executor.last)


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH", "AUTOMATIC"])
def test_a_preview_begins_anew_in_streaming_mode_and_takes_no_checkpoints(
    executor: RecordingExecutor, mode: str
) -> None:
    said = {
        "execution.checkpointing.interval": "1 s",
        "execution.savepoint.path": "savepoints/1",
        "execution.runtime-mode": mode,
    }
    env = StreamExecutionEnvironment.get_execution_environment(said)
    numbers = env.from_collection([1], Types.INT())
    env.preview_stream(numbers)
    settings = Settings(executor.last.settings)
    assert settings.get_option(IS_PREVIEW) and not runs_in_batch(settings)
    assert settings.duration_ms(INTERVAL) == 0 and settings.get_option(RECOVERY_PATH) == ""
    # A cluster that starts with it gives its settings to later jobs.
    of_cluster = settings_for_cluster(executor.last.settings)
    assert PREVIEW_SETTINGS.keys().isdisjoint(of_cluster)
    numbers.print()
    env.execute_async()
    settings = Settings(executor.last.settings)
    assert not settings.get_option(IS_PREVIEW)
    assert runs_in_batch(settings) == (mode != "STREAMING")
    assert settings.duration_ms(INTERVAL) == 1000
    assert settings.get_option(RECOVERY_PATH) == "savepoints/1"
    assert settings_for_cluster(executor.last.settings) == executor.last.settings


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_library_that_is_missing_is_named_before_the_program_runs(
    env: StreamExecutionEnvironment,
    executor: RecordingExecutor,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
) -> None:
    monkeypatch.setattr(stream_results, "find_spec", lambda name: None)
    stream = env.from_collection([1], Types.INT())
    with pytest.raises(ProgramError, match=rf"to_{library} needs {library}.*pip install {library}"):
        getattr(stream, f"to_{library}")()
    assert executor.submitted == []


def test_records_without_a_type_have_no_columns(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ProgramError, match=r"no declared type.*output_type"):
        env.from_collection([object]).to_arrow()


def test_a_stream_without_an_end_needs_a_limit(env: StreamExecutionEnvironment) -> None:
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG())
    endless = env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
    with pytest.raises(
        ProgramError, match="has no end: pass the number of records to wait for as `limit`"
    ):
        endless.to_arrow()


@pytest.mark.parametrize("ask", [lambda s: s.to_arrow(0), lambda s: s.preview(0)])
def test_nobody_waits_for_no_record(env: StreamExecutionEnvironment, ask: Any) -> None:
    with pytest.raises(ValueError, match="must be at least 1, but is 0"):
        ask(env.from_collection([1], Types.INT()))


def test_a_preview_is_a_table_of_text_and_of_html() -> None:
    shown = StreamPreview(
        Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), [Row(1, "<b>")]
    )
    assert repr(shown) == "a | b\n1 | <b>"
    assert "<td>1</td><td>&lt;b&gt;</td>" in shown._repr_html_()  # pyright: ignore[reportPrivateUsage]


def test_values_without_fields_are_one_column_and_long_ones_are_cut() -> None:
    shown = StreamPreview(Types.STRING(), ["x" * 1000])
    assert repr(shown) == "value\n" + "x" * 199 + "…"
