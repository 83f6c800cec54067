"""The proof by which both ends of a connection show that they know the cluster's secret, without showing it.

A proof is an HMAC over the plane, the prover's role and both hellos, each of which carries a fresh nonce: it cannot be
replayed, reflected, carried from one plane to the other or used with an altered hello. It neither hides nor protects
what follows; that takes TLS. Pure: each plane owns its hellos and their framing.

Also here: the bound on how many peers may be listened to before they have proved themselves.
"""

import enum
import hmac
from typing import Final, Generic, TypeVar

SECRET_SIZE: Final = 32
NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32
STRANGERS_MAX: Final = 256
"""How many accepted connections of one listener may be unproven at a time."""

C = TypeVar("C")


class Role(enum.Enum):
    """Which side of the connection this is."""

    DIALLER = b"dialler"
    ACCEPTOR = b"acceptor"

    @property
    def other(self) -> "Role":
        """The peer's side."""
        return Role.ACCEPTOR if self is Role.DIALLER else Role.DIALLER


class MutualProof:
    """One side's part of it, on the plane called `plane`."""

    def __init__(self, plane: bytes, role: Role, secret: bytes) -> None:
        assert len(secret) == SECRET_SIZE, f"the secret has {SECRET_SIZE} bytes"
        self._plane: Final = plane
        self._role: Final = role
        self._secret: Final = secret

    def prove(self, own_hello: bytes, peer_hello: bytes) -> bytes:
        """What this side shows: PROOF_SIZE bytes."""
        return self._digest(self._role, own_hello, peer_hello)

    def accepts(self, proof: bytes, own_hello: bytes, peer_hello: bytes) -> bool:
        """Whether only somebody who knows the secret can have sent `proof`; takes as long whatever is wrong."""
        return hmac.compare_digest(proof, self._digest(self._role.other, own_hello, peer_hello))

    def _digest(self, prover: Role, own_hello: bytes, peer_hello: bytes) -> bytes:
        hellos = own_hello + peer_hello if self._role is Role.DIALLER else peer_hello + own_hello
        return hmac.digest(
            self._secret, self._plane + b" " + prover.value + b"\0" + hellos, "sha256"
        )


class Strangers(Generic[C]):
    """Accepted connections that have proved nothing yet, oldest first; at most `count_max`."""

    def __init__(self, count_max: int = STRANGERS_MAX) -> None:
        self._count_max: Final = count_max
        self._waiting: dict[C, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def opened(self, connection: C) -> C | None:
        """One more. Returns the connection to drop for it: the oldest, so that a flood cannot keep others out."""
        self._waiting[connection] = None
        if len(self._waiting) <= self._count_max:
            return None
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        return oldest

    def no_longer(self, connection: C) -> None:
        """It has proved itself, or is gone. Unknown ones are fine."""
        self._waiting.pop(connection, None)
