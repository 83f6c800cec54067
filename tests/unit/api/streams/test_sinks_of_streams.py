from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.streams.data_stream import DataStream
from headrace.connectors.files.sink.file_sink import FileSink
from headrace.datastream.connectors.base import StreamTransformer, SupportsPreprocessing
from headrace.functions.serialization import Encoder
from headrace.functions.sink import DiscardingSink
from tests.unit.api.recording import plan_nodes


class Doubled(StreamTransformer):
    def apply(self, ds: DataStream) -> Any:
        return ds.map(lambda n: 2 * n, Types.INT()).name("doubled")


class Nothing(StreamTransformer):
    def apply(self, ds: Any) -> Any:
        return None


class Prepared(DiscardingSink, SupportsPreprocessing):
    def __init__(self, transformer: StreamTransformer | None) -> None:
        self.transformer = transformer

    def get_transformer(self) -> StreamTransformer | None:
        return self.transformer


def names(env: StreamExecutionEnvironment) -> list[str]:
    return [node["type"] for node in plan_nodes(env.get_execution_plan())]


def test_a_sink_may_have_the_stream_transformed_before_it_is_written(
    env: StreamExecutionEnvironment,
) -> None:
    env.from_collection([1], Types.INT()).sink_to(Prepared(Doubled()))
    assert "doubled" in names(env)
    assert "Sink: Prepared" in names(env)


def test_a_sink_without_a_transformer_takes_the_stream_as_it_is(
    env: StreamExecutionEnvironment,
) -> None:
    numbers = env.from_collection([1], Types.INT())
    numbers.sink_to(Prepared(None))
    assert names(env) == ["Source: Collection Source", "Sink: Prepared"]
    assert (
        FileSink.for_row_format("out", Encoder.simple_string_encoder()).build().get_transformer()
        is None
    )
    with pytest.raises(TypeError, match="must give a DataStream"):
        numbers.sink_to(Prepared(Nothing()))


def test_add_sink_takes_sinks_also_on_a_keyed_stream_whose_keys_it_leaves_out(
    env: StreamExecutionEnvironment,
) -> None:
    numbers = env.from_collection([1], Types.INT())
    numbers.add_sink(DiscardingSink()).name("plain")
    numbers.key_by(lambda n: n, Types.INT()).add_sink(DiscardingSink()).name("keyed")
    assert {"Sink: plain", "Sink: keyed"} <= set(names(env))
    with pytest.raises(TypeError, match="add_sink needs a Sink"):
        numbers.key_by(lambda n: n).add_sink("out")
