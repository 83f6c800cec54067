"""`make test` tries properties on few examples and leaves out what is slow; `make test-slow` has the rest."""

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


def test_what_the_quick_tests_leave_out_is_in_the_slow_ones() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    quick, slow = (
        text.partition(f"\n{target}:")[2].split("\n\n", 1)[0] for target in ("test", "test-slow")
    )
    assert '-m "not slow" $(FAST_TESTS)' in quick
    assert '-m "slow or hypothesis" --hypothesis-profile thorough tests/unit' in slow
    assert "--hypothesis-profile thorough tests/simulation" in slow
