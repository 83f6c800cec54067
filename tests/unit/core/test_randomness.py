"""Randomness of real processes cannot be foretold; that of tests and simulations comes from a seed."""

from collections.abc import Callable
from random import Random

import pytest

from headrace.core.ids import JobId, ResourceManagerId
from headrace.core.randomness import quick_random, system_random
from headrace.core.security.hmac_handshake import NONCE_SIZE


@pytest.mark.parametrize(
    "draw",
    [
        lambda random: random.randbytes(NONCE_SIZE),
        lambda random: random.getrandbits(64),
        JobId.generate,
        ResourceManagerId.generate,
    ],
    ids=["nonce", "token", "job id", "fencing token"],
)
def test_what_real_processes_draw_follows_from_no_state(draw: Callable[[Random], object]) -> None:
    """Whoever learns the state of a generator knows all that it draws: here there is none."""
    random = system_random()
    with pytest.raises(NotImplementedError):
        random.getstate()
    random.seed(1)
    first = draw(random)
    random.seed(1)
    assert draw(random) != first


def test_quick_draws_repeat_where_their_source_does() -> None:
    first, second = (quick_random(Random(7)) for _ in range(2))
    assert [first.random() for _ in range(3)] == [second.random() for _ in range(3)]
    assert quick_random(system_random()).random() != quick_random(system_random()).random()
