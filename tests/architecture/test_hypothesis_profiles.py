"""`make test` tries properties on few examples and leaves out what is slow; `make test-thorough` has the rest.

`make test-random` alone draws others in each run.
"""

import re
import subprocess

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
    wanted = {None: 10, "quick": 10, "ci": 40, "thorough": 100, "random": 1_000}
    profile = pytestconfig.getoption("--hypothesis-profile")
    assert len(seen) == wanted[profile]
    assert settings.default is not None
    assert settings.default.derandomize == (profile != "random")


def test_chance_has_a_target_of_its_own_that_says_its_seed_and_can_be_given_one() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "test-thorough" in script and "test-random" not in script
    printed = subprocess.run(
        [
            "make",
            "--no-print-directory",
            "--dry-run",
            "test-random",
            "SEED=17",
            "TESTS=tests/unit/task",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "seed=17; echo" in printed
    assert "--hypothesis-profile random --hypothesis-seed $seed" in printed
    assert printed.rstrip().endswith("tests/unit/task")


def test_what_the_quick_tests_leave_out_is_in_the_slow_ones() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    quick, slow = (
        text.partition(f"\n{target}:")[2].split("\n\n", 1)[0]
        for target in ("test", "test-thorough")
    )
    assert '-m "not slow" $(FAST_TESTS)' in quick
    assert '-m "slow or hypothesis"' in slow
    profiles = re.findall(r"--hypothesis-profile (.+) tests/(\w+)", slow)
    assert profiles == [("$(if $(AFTER),ci,thorough)", part) for part in ("unit", "simulation")]
