"""Where randomness enters the system: one injectable source, so that a seed reproduces a whole cluster.

Only this file may import `random`, `secrets` or `uuid`.
"""

import random
import secrets

SeededRandom = random.Random
"""The type every component takes; tests and the simulation pass one made from a seed."""


def system_random() -> random.Random:
    """Return a generator seeded by the operating system, for real processes."""
    return random.Random(secrets.randbits(128))


def secret_token() -> bytes:
    """Return 32 unpredictable bytes, the shared secret of one cluster."""
    return secrets.token_bytes(32)
