"""Damaged messages are one kind of error, however they are damaged, and never one without a name."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import DECODE_ERRORS
from headrace.rpc import codec
from headrace.rpc.contract import gateway_contract
from headrace.rpc.errors import SerializationError
from tests.unit.rpc.sample_endpoints import LedgerGateway

CALL = codec.encode(
    codec.Call(7, "ledger", "LedgerGateway", "add", b"t" * 16, msgspec.Raw(b"\x90"))
)
ANSWER = codec.encode(codec.Answer(7, msgspec.Raw(b"\x90")))
DEEP = b"\x91" * 100_000
"""Arrays within arrays."""
NO_TEXT = b"\xa2\xff\xfe"
DECODERS = [codec.decode_request, codec.decode_response]


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200))
def test_bytes_are_a_message_or_none(decode: object, data: bytes) -> None:
    assert callable(decode)
    message = None
    with contextlib.suppress(*DECODE_ERRORS):
        message = decode(data)
    assert message is None or isinstance(message, msgspec.Struct)


@pytest.mark.parametrize(("whole", "decode"), list(zip((CALL, ANSWER), DECODERS, strict=True)))
@given(
    position=st.integers(0, 60), put=st.sampled_from([DEEP, NO_TEXT, b"", b"\xcf" + b"\xff" * 8])
)
def test_a_message_with_anything_in_its_middle_is_one_or_none(
    whole: bytes, decode: object, position: int, put: bytes
) -> None:
    assert callable(decode)
    position %= len(whole)
    message = None
    with contextlib.suppress(*DECODE_ERRORS):
        message = decode(whole[:position] + put + whole[position + 1 :])
    assert message is None or isinstance(message, msgspec.Struct)


@pytest.mark.parametrize("encoded", [b"\x92" + DEEP, b"\x91" + NO_TEXT, b"\xc1", b""])
@pytest.mark.parametrize("method", ["add", "count"])
def test_arguments_and_results_that_cannot_be_read_are_named(method: str, encoded: bytes) -> None:
    contract = gateway_contract(LedgerGateway).methods[method]
    with pytest.raises(SerializationError, match=method):
        contract.decode_arguments(encoded)
    with pytest.raises(SerializationError, match=method):
        contract.decode_reply(encoded)
