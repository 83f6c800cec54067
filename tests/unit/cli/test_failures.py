"""Tracebacks of failures: the user's own part, and the rest on demand."""

import traceback

import pyarrow
import pytest

from headrace.api import environment
from headrace.cli.logs import describe, report_failure
from headrace.core.errors import HeadraceError, JobExecutionError

OURS = (
    f'  File "{environment.__file__}", line 90, in <lambda>\n    self._found()\n    ^^^^^^^^^^^^^\n'
)
LIBRARY = f'  File "{pyarrow.__file__}", line 7, in read\n    raise error\n'
USERS = '  File "/programs/job.py", line 8, in reciprocal\n    return 60 // (n - 2)\n           ~~~^^~~~~~~~~~\n'
HEADER = "Traceback (most recent call last):\n"
HINT = "(HEADRACE_DETAILS=1 shows the whole traceback)"


def failed(cause: str) -> HeadraceError:
    return JobExecutionError("0a", "hours", cause)


def test_a_traceback_that_never_leaves_headrace_is_not_shown() -> None:
    first = "FileNotFoundError: the path '/nope' does not exist (in operator 'Source: words')"
    last = "FileNotFoundError: the path '/nope' does not exist"
    error = failed(f"{first}\n{HEADER}{OURS}{LIBRARY}{last}")
    assert describe(error, wants_details=False) == [first, "job 'hours' (0a) FAILED", HINT]


def test_what_led_to_an_error_of_ours_is_not_told_again() -> None:
    told = "record 3 does not fit its declared type Byte: expected an integer of 8 bits"
    first = f"RecordTypeError: {told} (in operator 'Map')"
    inner = "headrace.core.types.scalar_codecs.ValueMismatch: expected an integer of 8 bits"
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    outer = f"{link}{HEADER}{OURS}headrace.core.errors.RecordTypeError: {told}"
    for whole in (f"{HEADER}{OURS}{inner}\n{outer}", f"{inner}\n{outer}"):
        lines = describe(failed(f"{first}\n{whole}"), wants_details=False)
        assert lines == [first, "job 'hours' (0a) FAILED", HINT]


def test_the_user_s_own_frames_stay() -> None:
    error = failed(f"ZeroDivisionError: by zero\n{HEADER}{OURS}{USERS}ZeroDivisionError: by zero")
    assert describe(error, wants_details=False) == [
        "ZeroDivisionError: by zero",
        "job 'hours' (0a) FAILED",
        *f"{HEADER}{USERS}ZeroDivisionError: by zero".splitlines(),
        HINT,
    ]


def test_an_exception_that_nothing_else_tells_of_stays() -> None:
    error = failed(
        f"the worker ended\n{HEADER}{OURS}headrace.core.errors.HostError: no memory\nsee its log"
    )
    assert describe(error, wants_details=False) == [
        "the worker ended",
        "headrace.core.errors.HostError: no memory",
        "see its log",
        "job 'hours' (0a) FAILED",
        HINT,
    ]


def test_a_traceback_of_the_user_s_files_alone_is_shown_as_it_is() -> None:
    error = failed(f"ZeroDivisionError: by zero\n{HEADER}{USERS}ZeroDivisionError: by zero")
    lines = describe(error, wants_details=False)
    assert lines[2:] == f"{HEADER}{USERS}ZeroDivisionError: by zero".splitlines()


def test_with_details_every_frame_is_shown() -> None:
    error = failed(f"OSError: broken\n{HEADER}{OURS}OSError: broken")
    lines = describe(error, wants_details=True)
    assert OURS.splitlines()[0] in lines
    assert HINT not in lines


def test_who_sees_only_the_last_line_of_a_failed_job_sees_its_cause_and_the_command_line_says_it_once() -> (
    None
):
    text = f"ValueError: bad (in operator 'Map', job.py, line 8)\n{HEADER}{USERS}ValueError: bad"
    for cause in ("the worker was lost", "the worker was lost\nsee its log", text):
        first = cause.partition("\n")[0]
        error = failed(cause)
        shown = "".join(traceback.format_exception(error)).splitlines()
        assert first.partition(" (in ")[0] in shown[-1]
        told = describe(error, wants_details=False)
        assert told[0] == first and "job 'hours' (0a) FAILED" in told


@pytest.mark.parametrize("name", ["pyflink", "pyflink.datastream"])
def test_a_program_that_imports_pyflink_is_told_what_to_import(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report_failure(ModuleNotFoundError(f"No module named '{name}'", name=name))
    assert "import the same names from headrace instead" in capsys.readouterr().err


def test_another_module_that_is_missing_is_told_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report_failure(ModuleNotFoundError("No module named 'numpyy'", name="numpyy"))
    assert "headrace" not in capsys.readouterr().err
