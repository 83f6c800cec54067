"""Promises of the documents to those who bring a program of PyFlink's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.core.errors import ProgramError

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "getting_started" / "pyflink.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("call", "name", "says"),
    [
        (lambda env: env.add_jars("file:///a.jar"), "add_jars", "user code runs in Python here"),
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
