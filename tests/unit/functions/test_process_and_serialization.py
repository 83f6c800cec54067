"""Side-output tags, function defaults, schemas and encoders."""

from typing import Any

import pytest

from headrace.core.types.rows import Row
from headrace.core.types.type_info import Types
from headrace.functions.process import KeyedProcessFunction, OutputTag, TimeDomain
from headrace.functions.serialization import ByteArraySchema, Encoder, SimpleStringSchema


class Echo(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


def test_a_tag_needs_an_id() -> None:
    for nothing in ("", None):
        with pytest.raises(ValueError, match="tag_id cannot be None or empty"):
            OutputTag(nothing)  # type: ignore[arg-type]


def test_the_type_of_a_tag_is_given_or_pickled_or_a_row_of_a_list() -> None:
    assert OutputTag("t").type_info == Types.PICKLED_BYTE_ARRAY()
    assert OutputTag("t", Types.INT()).type_info == Types.INT()
    assert OutputTag("t", [Types.INT(), Types.STRING()]).type_info == Types.ROW(
        [Types.INT(), Types.STRING()]
    )


def test_tags_are_not_equal_by_value() -> None:
    assert OutputTag("t") != OutputTag("t")


def test_time_domains_have_numbers() -> None:
    assert (TimeDomain.EVENT_TIME.value, TimeDomain.PROCESSING_TIME.value) == (0, 1)


def test_timers_may_be_left_unhandled() -> None:
    function = Echo()
    function.open(None)  # type: ignore[arg-type]
    assert function.on_timer(5, None) is None  # type: ignore[arg-type]
    function.close()


def test_text_and_bytes_pass_schemas() -> None:
    text = SimpleStringSchema("UTF-16")
    assert text.deserialize(text.serialize("钥")) == "钥"
    assert text.get_produced_type() == Types.STRING()
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(bytearray(b"x"))) == b"x"


def test_the_string_encoder_writes_one_line_of_typed_text_per_record() -> None:
    encoder = Encoder.simple_string_encoder()
    assert (
        encoder.encode(Row("a", None), Types.ROW([Types.STRING(), Types.INT()])) == b"+I[a, null]\n"
    )
    assert encoder.encode(True, Types.BOOLEAN()) == b"true\n"
