"""Exceptions that travel: rebuilt where they are known, readable where they are not."""

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import error_codec
from headrace.core import errors as core_errors
from headrace.core.error_codec import decode_error, encode_error
from headrace.core.errors import HeadraceError, PortInUseError, RemoteError, UserCodeError
from headrace.core.ids import JobId
from headrace.rpc.codec import ErrorResponse, decode_response, encode
from headrace.rpc.errors import AskTimeoutError, FencingTokenError


def travel(error: BaseException) -> Exception:
    response = decode_response(encode(ErrorResponse(1, encode_error(error))))
    assert isinstance(response, ErrorResponse)
    return decode_error(response.failure, "there")


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    "error",
    [
        PortInUseError("host", 6123, "jobmanager.rpc.port"),
        UserCodeError("ValueError", "bad", "map", "file.py, line 3", "Traceback …"),
        AskTimeoutError("Gateway.method", "somewhere", 12.5),
        FencingTokenError("somewhere", "m", "aa", None),
        core_errors.JobExecutionError("id", "name", "first line\nrest"),
        core_errors.VersionMismatchError("python", "3.11", "3.12", "worker 1"),
        RemoteError("somewhere.Else", "text", "Traceback …"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_known_error_keeps_class_text_and_facts(error: HeadraceError) -> None:
    rebuilt = travel(error)
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)
    assert vars(rebuilt) == vars(error)


def test_the_remote_traceback_is_printed_with_the_error() -> None:
    rebuilt = travel(raised(PortInUseError("host", 1, "key")))
    text = "".join(traceback.format_exception(rebuilt))
    assert "raised at there" in text and "in raised" in text and "test_error_codec.py" in text


def test_an_error_of_another_tree_becomes_a_remote_error() -> None:
    rebuilt = travel(raised(ZeroDivisionError("by zero")))
    assert type(rebuilt) is RemoteError
    assert rebuilt.class_name == "ZeroDivisionError"
    assert str(rebuilt).startswith("ZeroDivisionError: by zero\n\nTraceback")


def test_an_error_with_facts_that_are_no_plain_values_becomes_a_remote_error() -> None:
    class StructuredError(HeadraceError):
        def __init__(self, job_id: JobId) -> None:
            super().__init__(f"job {job_id}")
            self.job_id = job_id

    rebuilt = travel(StructuredError(JobId(b"0" * 16)))
    assert type(rebuilt) is RemoteError and "StructuredError: job 3030" in str(rebuilt)


class MissingJobError(HeadraceError):
    def __init__(self, job_id: JobId) -> None:
        super().__init__(f"no job {job_id}")
        self.job_id = job_id


def test_an_error_may_register_a_codec_for_its_facts() -> None:
    error_codec.register(MissingJobError, JobId, lambda error: error.job_id, MissingJobError)
    rebuilt = travel(raised(MissingJobError(JobId(b"0" * 16))))
    assert isinstance(rebuilt, MissingJobError) and rebuilt.job_id == JobId(b"0" * 16)
    assert "raised at there" in "".join(traceback.format_exception(rebuilt))


def test_cause_context_and_notes_stay_readable() -> None:
    try:
        try:
            try:
                raise KeyError("innermost")
            except KeyError as error:
                raise PortInUseError("host", 1, "key") from error
        except PortInUseError:
            raise ValueError("outermost")  # noqa: B904 - the context is what is tested
    except ValueError as error:
        error.add_note("look at the port")
        rebuilt = travel(error)
    assert rebuilt.__notes__ == ["look at the port"]
    assert rebuilt.__cause__ is None
    assert isinstance(rebuilt.__context__, PortInUseError)
    assert isinstance(rebuilt.__context__.__cause__, RemoteError)
    text = "".join(traceback.format_exception(rebuilt))
    assert text.index("innermost") < text.index("port 1 on host") < text.index("outermost")


def test_a_context_that_was_suppressed_stays_out() -> None:
    try:
        try:
            raise KeyError("hidden")
        except KeyError:
            raise ValueError("shown") from None
    except ValueError as error:
        rebuilt = travel(error)
    assert rebuilt.__context__ is None and rebuilt.__cause__ is None


def test_long_texts_and_chains_are_cut() -> None:
    error: Exception = ValueError("first")
    for number in range(50):
        following = ValueError(f"{number} " + "x" * 200_000)
        following.__cause__ = error
        error = following
    assert len(encode(ErrorResponse(1, encode_error(error)))) < 8 * 70_000
    depth, link = 0, travel(error)
    while link.__cause__ is not None:
        depth, link = depth + 1, link.__cause__
    assert depth == 7


def test_a_known_error_with_a_very_long_fact_stays_what_it_is() -> None:
    rebuilt = travel(
        UserCodeError("RecursionError", "deep", "map", "file.py, line 3", "x" * 900_000)
    )
    assert isinstance(rebuilt, UserCodeError) and rebuilt.location == "file.py, line 3"
    assert len(rebuilt.remote_traceback) <= 64 * 1024


def test_an_error_whose_text_cannot_be_had_still_travels() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "str() failed with RuntimeError" in str(travel(MuteError()))


class UndescribableError(HeadraceError):
    """Its codec is broken."""


def test_an_error_whose_codec_fails_still_travels_by_its_name() -> None:
    error_codec.register(UndescribableError, int, lambda _: 1 // 0, lambda _: UndescribableError())
    rebuilt = travel(UndescribableError("text"))
    assert isinstance(rebuilt, RemoteError)
    assert "UndescribableError: the error could not be described: ZeroDivisionError" in str(rebuilt)


def test_facts_of_another_version_leave_a_readable_error() -> None:
    error_codec.register(MissingJobError, JobId, lambda error: error.job_id, MissingJobError)
    name = f"{MissingJobError.__module__}.{MissingJobError.__qualname__}"
    failure = error_codec.RemoteFailure(name, "no job 7", structured=b"\x07")
    assert str(decode_error(failure, "there")) == f"{name}: no job 7"


def test_a_class_that_is_not_loaded_here_becomes_a_remote_error() -> None:
    failure = error_codec.RemoteFailure("elsewhere.StrangeError", "text", "Traceback …", facts={})
    assert type(decode_error(failure, "there")) is RemoteError


def test_nothing_outside_the_tree_of_errors_is_ever_made() -> None:
    for name in ("builtins.SystemExit", "SystemExit", "os.system", "headrace.core.ids.JobId"):
        failure = error_codec.RemoteFailure(name, "text", facts={"code": 1})
        assert type(decode_error(failure, "there")) is RemoteError


@given(st.text(), st.text(), st.one_of(st.integers(), st.floats(allow_nan=False), st.text()))
def test_any_text_and_fact_survives_or_falls_back(text: str, other: str, fact: object) -> None:
    error = AskTimeoutError(text, other, 1)
    error.timeout_ms = fact  # type: ignore[assignment]
    rebuilt = travel(error)
    assert isinstance(rebuilt, AskTimeoutError | RemoteError)
    if isinstance(rebuilt, AskTimeoutError):
        assert rebuilt.timeout_ms == fact
