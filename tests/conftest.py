"""What every test shares: the options of this test run, and what hypothesis draws."""

import copy
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# `make test` looks at few examples, `make test-slow` at many (`--hypothesis-profile thorough`), derandomised: a run
# says the same today and tomorrow. `make test-random` draws new ones each time (`random`), from a seed that it prints.
# Tests that name a number keep it.
EXAMPLES = {"quick": 10, "thorough": 200, "random": 1_000}
for name, max_examples in EXAMPLES.items():
    settings.register_profile(
        name,
        max_examples=max_examples,
        derandomize=name != "random",
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help="run the simulation from this seed instead of the seeds its tests name",
    )
    parser.addoption(
        "--force-serialization",
        action="store_true",
        help="encode and decode calls within one process too, unless a test's own settings say otherwise",
    )


@pytest.fixture(scope="session")
def simulation_seed(request: pytest.FixtureRequest) -> int | None:
    """The seed of `make sim SEED=…`, or None where the test's own seeds hold."""
    return request.config.getoption("--seed")


@pytest.fixture(scope="session", autouse=True)
def forced_serialization(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether `pekko.rpc.force-invocation-serialization` is on by default, as `--force-serialization` has it."""
    is_forced: bool = request.config.getoption("--force-serialization")
    if not is_forced:
        yield False
        return
    from headrace.rpc import service

    option = copy.copy(service.FORCE_INVOCATION_SERIALIZATION)
    object.__setattr__(option, "default", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "FORCE_INVOCATION_SERIALIZATION", option)
        yield True
