"""wrap_user_error: what an exception of user code says of itself decides whether a restart follows, and how often."""

import pytest

from headrace.core.errors import (
    UNKNOWN_LOCATION,
    FinalUserCodeError,
    RecordTypeError,
    UserCodeError,
    wrap_user_error,
)


class SaysSo(Exception):
    def __init__(self, recoverable: bool) -> None:
        super().__init__("said")
        self.recoverable = recoverable


class Unwilling(Exception):
    @property
    def recoverable(self) -> bool:
        raise RuntimeError("not telling")


@pytest.mark.parametrize(
    ("error", "recoverable", "repeats"),
    [
        (ValueError("bad"), True, True),
        (OSError(28, "No space left on device"), True, True),
        (Unwilling(), True, True),
        (SaysSo(False), False, True),
        (SaysSo(True), True, False),
        (ConnectionRefusedError("down"), True, False),
        (TimeoutError("slow"), True, False),
        (RecordTypeError("x", "BIGINT", "no number"), False, True),
    ],
    ids=lambda value: repr(value),
)
def test_errors_are_final_or_come_again_or_may_pass(
    error: Exception, recoverable: bool, repeats: bool
) -> None:
    wrapped = wrap_user_error(error, "map")
    assert (wrapped.recoverable, wrapped.repeats) == (recoverable, repeats)
    assert isinstance(wrapped, FinalUserCodeError) is not recoverable


def test_the_line_that_raised_is_better_than_the_one_that_is_given() -> None:
    try:
        raise ValueError("bad")
    except ValueError as error:
        raised = wrap_user_error(error, "map", "program.py, line 3")
    never_raised = wrap_user_error(ValueError("bad"), "map", "program.py, line 3")
    assert __file__ in raised.location
    assert never_raised.location == "program.py, line 3"
    assert wrap_user_error(ValueError("bad"), "map").location == UNKNOWN_LOCATION


def test_a_place_that_is_known_later_changes_nothing_else() -> None:
    wrapped = wrap_user_error(SaysSo(True), "map").at("program.py, line 3")
    final = wrap_user_error(SaysSo(False), "map").at("program.py, line 3")
    assert (type(wrapped), type(final)) == (UserCodeError, FinalUserCodeError)
    assert "(in operator 'map', program.py, line 3)" in str(wrapped)
    assert not wrapped.repeats and final.repeats
