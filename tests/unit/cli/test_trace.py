"""`headrace trace exchange`: what it prints, how it waits, and that it needs no Spark."""

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from headrace.cli import trace as trace_command
from headrace.cli.main import cli
from headrace.cli.trace import FIGURES_WIDTH, STACKED, WIDTH_MAX, heading, row, text_width
from headrace.network.trace.exchange import TraceSettings, trace_exchange
from headrace.network.trace.steps import Reading, TraceStep

GOLDEN = Path(__file__).parent / "trace_exchange.txt"


def run(*options: str, text: str | None = None) -> str:
    result = CliRunner().invoke(
        cli, ["trace", "exchange", *options], input=text, standalone_mode=False
    )
    assert result.exception is None and result.return_value == 0
    return result.output


def test_a_small_trace_looks_as_it_should() -> None:
    assert run("--rows", "3", "--slow-consumer") == GOLDEN.read_text(encoding="utf-8")


def test_no_line_is_wider_than_said_or_ends_in_blanks() -> None:
    lines = run("--rows", "30", "--slow-consumer").splitlines()
    assert all(len(line) <= WIDTH_MAX and line == line.rstrip() for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 100, 113, 114, 120, 200])
def test_a_terminal_s_width_is_respected(width: int) -> None:
    output = StringIO()
    console = Console(file=output, width=width, force_terminal=True, color_system=None)
    column = text_width(console.width)
    console.print(heading(column))
    for step in trace_exchange(TraceSettings(row_count=12, is_consumer_slow=True)):
        console.print(row(column, step, None))
    assert max(len(line.rstrip()) for line in output.getvalue().splitlines()) <= width
    assert column <= WIDTH_MAX - FIGURES_WIDTH


def test_a_narrow_terminal_has_the_figures_below_what_happened() -> None:
    assert text_width(100) == STACKED
    output = StringIO()
    console = Console(file=output, width=80, force_terminal=True, color_system=None)
    steps = trace_exchange(TraceSettings())
    console.print(row(STACKED, steps[6], None))
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    assert lines[0] == "  7 A receives PartitionRequest of channel 0, credit 2"
    assert lines[2] == "      A → B  Data #0 of channel 0, backlog 4"
    assert lines[-1].split() == ["0", "3", "2", "0", "2", "0", "0", "0", "8", "✓"]


def test_what_changed_stands_out_on_a_terminal() -> None:
    steps = [step for step in trace_exchange(TraceSettings()) if step.reading is not None]
    output = StringIO()
    console = Console(file=output, width=120, force_terminal=True, color_system="standard")
    console.print(row(40, steps[0], steps[0].reading))
    unchanged = output.getvalue()
    console.print(row(40, steps[2], steps[0].reading))
    assert "\x1b[1;33m" not in unchanged and "\x1b[1;33m" in output.getvalue()[len(unchanged) :]


def test_json_is_one_object_per_step() -> None:
    steps = [json.loads(line) for line in run("--json", "--rows", "2").splitlines()]
    assert [step["number"] for step in steps] == list(range(1, len(steps) + 1))
    assert all(step["is_lawful"] for step in steps)
    assert any(frame["name"] == "Data" for step in steps for frame in step["sent"])


def test_steps_wait_for_enter_and_not_beyond_the_end_of_the_input() -> None:
    assert run("--rows", "2", "--step", text="\n\n") == run("--rows", "2")


@pytest.mark.slow
def test_options_reach_the_exchange() -> None:
    assert "credit 3" in run("--exclusive", "3", "--floating", "0")
    assert "The gate has one remote channel" in run("--channels", "1")
    assert run("--seed", "1") != run("--seed", "2")
    assert "is back-pressured" in run("--rows", "20", "--slow-consumer")


def test_a_broken_law_is_said_and_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = TraceStep(1, "it broke", (), Reading(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), False)
    monkeypatch.setattr(trace_command, "trace_exchange", lambda settings: [broken])
    result = CliRunner().invoke(cli, ["trace", "exchange"], standalone_mode=False)
    assert result.return_value == 1
    assert "✗" in result.output and "does NOT hold at step 1" in result.output


@pytest.mark.parametrize("delay", ["nan", "-1", "inf", "61"])
def test_a_delay_that_no_step_can_wait_is_refused(delay: str) -> None:
    result = CliRunner().invoke(cli, ["trace", "exchange", "--rows", "1", "--delay", delay])
    assert result.exit_code != 0 and "is not in the range 0<=x<=60" in result.output


def test_help_teaches_with_examples() -> None:
    result = CliRunner().invoke(cli, ["trace", "exchange", "--help"])
    assert "headrace trace exchange --slow-consumer --rows 20" in result.output
    assert "headrace trace exchange" in CliRunner().invoke(cli, ["--help"]).output


def test_a_trace_starts_without_spark() -> None:
    script = (
        "import sys\nfrom click.testing import CliRunner\nfrom headrace.cli.main import cli\n"
        "CliRunner().invoke(cli, ['trace', 'exchange'])\nprint('pyspark' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
