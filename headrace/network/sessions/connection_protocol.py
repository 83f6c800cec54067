"""ConnectionProtocol: one side of a connection, bytes in and bytes out: the handshake, then frames for a session.

Pure: sockets and the simulation drive the same object. ControlFrameLimiter bounds the control frames of a peer.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from headrace.core.security.hmac_handshake import Role
from headrace.network.errors import ConnectionLostError, NetworkError
from headrace.network.sessions.peer_session import Session, last_words
from headrace.network.sessions.transport import Link, TransportHost
from headrace.network.wire.frame_decoder import FrameDecoder
from headrace.network.wire.frames import Close, Data, Feature, IngestData, KeepAlive, PushData
from headrace.network.wire.framing import Body, Frame, encode
from headrace.network.wire.handshake import OPENING_BYTES_MAX, Established, Handshake
from headrace.network.wire.keepalive import Liveness, LivenessAction

FREE_FRAMES_PER_S: Final = 2_000
FREE_FRAMES_BURST: Final = 2_048
"""Number of frames that may come at once, for example requests for all channels of a few large gates.

As many earned frames may be saved up.
"""
EARNED_FRAMES_PER_S_MAX: Final = 18_000
"""Most frames per second that sent rows can earn, whatever their number: the rate of batches with one row each."""
BYTES_PER_EARNED_FRAME: Final = 64
"""Number of sent bytes that earn a frame; no batch is smaller, so each earns the credit that answers it."""
_PAID: Final = (Data, IngestData, PushData)


class ControlFrameLimiter:
    """Limits the control frames of a peer, which cost it nothing. Pure; times are monotonic nanoseconds."""

    __slots__ = ("_earned", "_left", "_since_ns")

    def __init__(self, now_ns: int) -> None:
        self._left = float(FREE_FRAMES_BURST)
        self._earned = 0.0
        self._since_ns = now_ns

    def sent(self, byte_count: int) -> None:
        """Record that `byte_count` bytes were sent to the peer."""
        self._earned += byte_count / BYTES_PER_EARNED_FRAME

    def spend(self, frames: Sequence[Frame], now_ns: int) -> float:
        """Record received frames; return for how many ms to read nothing more, 0 if budget is left."""
        # Count by exact types, without a Python step per frame: a hostile peer sends thousands at once.
        types = list(map(type, frames))
        paid_count = sum(map(types.count, _PAID))
        elapsed_s = (now_ns - self._since_ns) / 1e9
        self._since_ns = now_ns
        earned = min(self._earned + paid_count, elapsed_s * EARNED_FRAMES_PER_S_MAX)
        self._earned = min(FREE_FRAMES_BURST, self._earned + paid_count - earned)
        gained = elapsed_s * FREE_FRAMES_PER_S + earned
        self._left = min(FREE_FRAMES_BURST, self._left + gained) - (len(frames) - paid_count)
        return 0.0 if self._left >= 0 else math.ceil(-self._left / FREE_FRAMES_PER_S * 1000)


class ConnectionProtocol:
    """One side of a connection: read into `buffer()`, call `received(n)`, and write what `take_output()` returns.

    `expected_name` is the name that a dialler expects; an acceptor calls `on_claimed` with the unverified name of its
    peer. A NetworkError from `received` ends the connection: write what `last_output()` returns, close, and call
    `lost`. Once established, call `check_alive()` until it returns None. If `read_pause_ms` is not 0 after `received`,
    read nothing for that long.
    """

    def __init__(
        self,
        host: TransportHost,
        link: Link,
        role: Role,
        on_established: Callable[[str, Session], None],
        expected_name: str | None = None,
        on_claimed: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._host = host
        self._link = link
        self._role = role
        self._on_established = on_established
        self._on_claimed = on_claimed
        self._handshake: Handshake | None = Handshake(
            role,
            host.name,
            host.secret,
            host.random,
            link.peer,
            host.features,
            expected_name=expected_name,
        )
        self._opening_buffer: Final = bytearray(OPENING_BYTES_MAX)
        self._assembler: FrameDecoder | None = None
        self._output: list[Body] = []
        self._liveness: Liveness | None = None
        self._budget: ControlFrameLimiter | None = None
        self.read_pause_ms = 0.0
        """Time in ms for which to read nothing after the last `received`, because the peer exceeds its share."""
        self.session: Session | None = None
        opening = self._handshake.opening()
        if opening:
            self._output.append(opening)

    @property
    def is_established(self) -> bool:
        """Return whether the peer has authenticated itself."""
        return self.session is not None

    @property
    def is_spent(self) -> bool:
        """Return whether the connection is no longer needed, so that this side must close it."""
        return self.session is not None and self.session.is_spent

    @property
    def has_output_left(self) -> bool:
        return self.session is not None and self.session.has_output_left

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes."""
        if self._assembler is not None:
            return self._assembler.buffer()
        return memoryview(self._opening_buffer)

    def received(self, byte_count: int) -> bool:
        """Process the bytes that were written to `buffer()`; return whether there may be output to send now."""
        if self._assembler is None:
            self._open(bytes(self._opening_buffer[:byte_count]))
            return True
        assert self.session is not None
        try:
            frames = self._assembler.received(byte_count)
            now_ns = self._host.clock.monotonic_ns()
            if self._liveness is not None:
                self._liveness.received(byte_count, bool(frames), now_ns)
            if self._budget is not None:
                self.read_pause_ms = self._budget.spend(frames, now_ns)
            for message in frames:
                self.session.frame_received(message)
        except ConnectionLostError:
            raise
        except NetworkError as error:
            self._output += last_words(error)
            raise
        return bool(frames)

    def take_output(self, budget_bytes: int) -> list[Body]:
        """Return buffers to write; empty if nothing can be sent now."""
        output, self._output = self._output, []
        if self.session is not None:
            output += self.session.take_output(budget_bytes)
        if not output:
            return output
        if self._liveness is not None:
            self._liveness.sent(self._host.clock.monotonic_ns())
        if self._budget is not None:
            self._budget.sent(sum(map(len, output)))
        return output

    def check_alive(self) -> float | None:
        """Return the ms until the next call, None for never; there may be output to send now.

        ConnectionLostError if the peer is considered dead.
        """
        liveness = self._liveness
        if liveness is None:
            return None
        now_ns = self._host.clock.monotonic_ns()
        timeout_s = self._host.keep_alive.timeout_ns / 1e9
        match liveness.check(now_ns):
            case LivenessAction.GIVE_UP_SILENT:
                reason = f"it has sent nothing for {timeout_s:g} s"
                raise ConnectionLostError(self._link.peer, reason)
            case LivenessAction.GIVE_UP_STUCK:
                raise ConnectionLostError(
                    self._link.peer, f"it has read nothing for {timeout_s:g} s"
                )
            case LivenessAction.SEND:
                self._output += encode(KeepAlive())
            case LivenessAction.NOTHING:
                pass
        return max(1.0, (liveness.due_ns - now_ns) / 1e6)

    def last_output(self) -> list[Body]:
        """Return the remaining output to send after an error."""
        output, self._output = self._output, []
        return output

    def farewell(self) -> list[Body]:
        """Return the output to send before closing on purpose."""
        return (
            [*self.last_output(), *encode(Close())] if self.is_established else self.last_output()
        )

    def lost(self, error: NetworkError) -> None:
        """Handle the end of the connection."""
        # A partly received body holds a segment.
        self._assembler = None
        session, self.session = self.session, None
        if session is not None:
            session.lost(error)

    def _open(self, data: bytes) -> None:
        assert self._handshake is not None
        reply, established = self._handshake.receive(data)
        claimed = self._handshake.claimed_name
        if claimed is not None and self._role is Role.ACCEPTOR:
            self._on_claimed(claimed)
        if reply:
            self._output.append(reply)
        if established is not None:
            self._establish(established)

    def _establish(self, established: Established) -> None:
        name = established.peer_name
        self._handshake = None
        session = self._host.open_session(self._link, name, established.features)
        self.session = session
        self._assembler = FrameDecoder(
            name, session.check_body, needs_checksums=bool(established.features & Feature.CHECKSUM)
        )
        self._budget = ControlFrameLimiter(self._host.clock.monotonic_ns())
        if session.is_kept_alive and self._host.keep_alive.interval_ns:
            self._liveness = Liveness(self._host.keep_alive, self._host.clock.monotonic_ns())
        self._on_established(name, session)
        rest = established.rest
        while rest:
            room = self._assembler.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.received(count)
            rest = rest[count:]
