"""Properties are tried on few examples by `make test` and on many by `make test-slow`."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.architecture.floor_plan import ROOT


def test_a_property_without_a_number_of_its_own_takes_the_one_of_the_profile(
    pytestconfig: pytest.Config,
) -> None:
    seen: list[int] = []

    @given(st.integers())
    def collect(number: int) -> None:
        seen.append(number)

    collect()
    wanted = {None: 10, "quick": 10, "thorough": 200}
    assert len(seen) == wanted[pytestconfig.getoption("--hypothesis-profile")]
    assert settings.default is not None and settings.default.derandomize


def test_the_slow_tests_hold_properties_to_the_thorough_profile() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    _, _, slow = text.partition("\ntest-slow:")
    assert "-m hypothesis --hypothesis-profile thorough" in slow.split("\n\n", 1)[0]
