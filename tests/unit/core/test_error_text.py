"""Errors in a notebook: the cause first, few lines, and nothing of ours between them."""

import traceback

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.error_text import DETAILS_VARIABLE, describe
from headrace.core.errors import HeadraceError, JobExecutionError, ProgramError

RAISED = """ZeroDivisionError: by zero (in operator 'Map', cell.py, line 3)
Traceback (most recent call last):
  File "{ours}", line 50, in _map
    rows = [
  File "/programs/cell.py", line 3, in divide
    return 1 // n
ZeroDivisionError: by zero"""


def rendered(error: HeadraceError) -> list[str]:
    """As IPython asks for it."""
    return error._render_traceback_()


def caught(make: object) -> HeadraceError:
    assert callable(make)
    with pytest.raises(HeadraceError) as info:
        make()
    return info.value


def fail() -> None:
    import headrace.api.environment as ours

    error = JobExecutionError("0a", "hours", RAISED.format(ours=ours.__file__))
    error.add_note("what a note says")
    raise error


def test_a_failed_job_is_its_cause_the_frames_of_the_user_and_where_it_was_run() -> None:
    lines = rendered(caught(fail))
    assert lines[0] == (
        "JobExecutionError: ZeroDivisionError: by zero (in operator 'Map', cell.py, line 3)"
    )
    assert lines[1] == "job 'hours' (0a) FAILED"
    assert '  File "/programs/cell.py", line 3, in divide' in lines
    assert "what a note says" in lines
    assert lines[-1] == f"({DETAILS_VARIABLE}=1 shows the whole traceback)"
    assert not any("headrace/api" in line for line in lines)
    assert any(line.startswith(f"  {__file__}, line ") for line in lines)


def test_a_mistake_in_a_program_is_a_few_lines() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    lines = rendered(caught(lambda: env.from_collection([0]).key_by("k")))
    assert lines[0].startswith(f"{ProgramError.__name__}: key_by needs a stream with columns")
    assert len(lines) < 8


def test_whoever_asks_for_details_has_the_whole_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DETAILS_VARIABLE, "1")
    lines = rendered(caught(fail))
    assert lines[0] == "Traceback (most recent call last):"
    assert any("core/errors.py" in line or "environment.py" in line for line in lines)


def test_an_error_of_the_program_names_those_behind_it() -> None:
    def job() -> None:
        try:
            fail()
        except HeadraceError as error:
            raise RuntimeError("the nightly run failed") from error

    def cleaned_up() -> None:
        try:
            job()
        except RuntimeError:
            raise OSError("no room for the report")  # noqa: B904 - as programs do

    with pytest.raises(OSError, match="no room") as info:
        cleaned_up()
    lines = describe(info.value, wants_details=False)
    assert lines[0].startswith("OSError: no room for the report")
    behind = [line for line in lines if line.startswith(("caused by: ", "while handling: "))]
    assert behind[0].startswith("while handling: RuntimeError: the nightly run failed")
    assert behind[1] == "caused by: ZeroDivisionError: by zero (in operator 'Map', cell.py, line 3)"
    assert len(behind) == 2


def test_that_sinks_are_forgotten_is_told_behind_the_cause_and_by_the_next_execute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(1)
    env.from_collection([0]).print().set_parallelism(2)
    error = caught(env.execute)
    assert caplog.records == []
    assert "forgotten" not in "".join(traceback.format_exception(error))
    lines = rendered(error)
    assert "parallelism" in lines[0]
    assert any("removed the sinks" in line for line in lines[1:])
    with pytest.raises(ProgramError, match=r"^No operators defined .* removed the sinks"):
        env.execute()
