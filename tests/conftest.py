"""What every test shares: the seed option of the simulation, and hypothesis without chance."""

import pytest
from hypothesis import HealthCheck, settings

# Derandomised, so that a run says the same today and tomorrow; `make sim` is where chance belongs.
settings.register_profile(
    "headrace",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help="run the simulation from this seed instead of the seeds its tests name",
    )


@pytest.fixture(scope="session")
def simulation_seed(request: pytest.FixtureRequest) -> int | None:
    """The seed of `make sim SEED=…`, or None where the test's own seeds hold."""
    return request.config.getoption("--seed")
