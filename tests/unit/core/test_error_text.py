"""What a notebook shows of an error: the cause first, few lines, and nothing of ours between them."""

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.error_text import DETAILS_VARIABLE
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
