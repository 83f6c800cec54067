"""Promises of the documents to those who bring a program of PyFlink's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.errors import ProgramError
from headrace.datastream import RuntimeExecutionMode

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "getting_started" / "pyflink.md").read_text(encoding="utf-8")


def run_in_batch_mode(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.from_collection([1]).print()
    env.execute_async()


@pytest.mark.parametrize(
    ("call", "name", "says"),
    [
        (
            run_in_batch_mode,
            "set_runtime_mode(BATCH)",
            "in STREAMING mode a bounded job gives the same final results",
        ),
        (lambda env: env.add_jars("file:///a.jar"), "add_jars", "user code runs in Python here"),
        (
            lambda env: env.set_python_requirements("requirements.txt"),
            "set_python_requirements",
            "nothing is installed on the workers",
        ),
        (
            lambda env: env.add_python_archive("a.zip"),
            "add_python_archive",
            "nothing is unpacked for the workers",
        ),
    ],
)
def test_settings_that_have_to_go_say_what_the_guide_says(
    env: StreamExecutionEnvironment,
    call: Callable[[StreamExecutionEnvironment], Any],
    name: str,
    says: str,
) -> None:
    assert f'| `{name}` | "{says}" |' in GUIDE
    with pytest.raises(ProgramError, match=says):
        call(env)
