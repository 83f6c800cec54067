"""Messages on the wire: golden bytes, and refusal of everything else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.error_codec import RemoteFailure
from headrace.rpc.codec import (
    NIL,
    Answer,
    Call,
    ConnectRequest,
    ErrorResponse,
    Request,
    Response,
    decode_request,
    decode_response,
    encode,
)

GOLDEN: list[tuple[Request | Response, str]] = [
    (ConnectRequest(1, "ledger", "m.Ledger"), "940101a66c6564676572a86d2e4c6564676572"),
    (
        Call(2, "ledger", "m.Ledger", "add", b"\x01\x02", msgspec.Raw(b"\x91\x05")),
        "970202a66c6564676572a86d2e4c6564676572a3616464c402" + "0102" + "9105",
    ),
    (
        Call(0, "ledger", "m.Ledger", "note", None, msgspec.Raw(b"\x90")),
        "970200a66c6564676572a86d2e4c6564676572a46e6f7465c090",
    ),
    (Answer(3, NIL), "930303c0"),
]


@pytest.mark.parametrize(("message", "hexadecimal"), GOLDEN)
def test_messages_have_the_bytes_they_always_had(
    message: Request | Response, hexadecimal: str
) -> None:
    assert encode(message).hex() == hexadecimal
    decode = decode_request if isinstance(message, Request) else decode_response
    assert decode(bytes.fromhex(hexadecimal)) == message


def test_a_failure_keeps_its_chain() -> None:
    failure = ErrorResponse(4, RemoteFailure("a.B", "text", cause=RemoteFailure("KeyError", "'x'")))
    assert decode_response(encode(failure)) == failure


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x90", b"\x93\x09\x01\x02", encode(Answer(1, NIL)), b"GET / HTTP/1.1"]
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_request(data)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_decode_or_are_refused_and_nothing_else(data: bytes) -> None:
    for decode in (decode_request, decode_response):
        try:
            message = decode(data)
        except msgspec.MsgspecError:
            continue
        assert decode(encode(message)) == message
