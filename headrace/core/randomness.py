"""Randomness from one injectable generator, so that a seed reproduces a whole cluster.

Only this file may import `random`, `secrets` or `uuid`.
"""

import random
import secrets

SeededRandom = random.Random
"""Type of the generator that every component receives; tests and the simulation pass one made from a seed."""


def system_random() -> random.Random:
    """Return the operating system's generator, for unpredictable nonces, tokens and ids.

    The state of a seeded generator can be computed from some hundreds of the numbers that it drew.
    """
    return secrets.SystemRandom()


def quick_random(source: random.Random) -> random.Random:
    """Return a generator, seeded by `source`, for many draws that need no security, such as choosing a subtask."""
    return random.Random(source.getrandbits(128))


def secret_token() -> bytes:
    """Return 32 unpredictable bytes, the shared secret of one cluster."""
    return secrets.token_bytes(32)
