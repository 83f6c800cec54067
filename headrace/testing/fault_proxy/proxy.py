"""FaultProxy: applies fault rules between two real sockets; an asyncio shell around one FaultInjector per connection.

Point a consumer at the proxy instead of at its producer, or let a cluster dial through it (`headrace.network.proxy`):
the handshake passes unchanged, so each side takes the proxy for the other one. `status_line` shows live counts.
"""

import asyncio
import contextlib
import errno
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from os.path import realpath
from typing import Any, Final

from headrace.core.clock import Clock, SystemClock
from headrace.core.host_port import join_host_port
from headrace.core.security.tls import is_loopback
from headrace.core.threads import spawn
from headrace.network.errors import ProtocolError
from headrace.network.transport.http_tunnel import PROXY
from headrace.testing.fault_proxy.injector import (
    CutConnection,
    Deliver,
    EndStream,
    FaultApplied,
    FaultInjector,
    ProxyAction,
)
from headrace.testing.fault_proxy.rules import Direction, FaultRule

HELD_BYTES_MAX: Final = 16 << 20
"""Maximum number of bytes of one direction that rules may hold back; above it the proxy stops reading."""
UNSENT_BYTES_MAX: Final = 1 << 20
"""Maximum number of bytes that may wait for a slow receiver; above it the proxy stops reading."""
_READ_BYTES: Final = 256 * 1024
_FLUSH_TIMEOUT_S: Final = 1.0
OnFault = Callable[[int, FaultApplied], None]
"""Function called with each fault: the number of the connection, and the fault."""
OnError = Callable[[str], None]
"""Function called with the reason why a connection could not be proxied any further."""
_ARROWS: Final = {Direction.FORWARD: "→", Direction.BACKWARD: "←"}


@dataclass(frozen=True)
class Address:
    """A TCP address, or a Unix socket if `path` is set."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse an address; ValueError."""
        if text.startswith("unix:") and len(text) > 5:
            return cls(path=text[5:])
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"'{text}' is neither host:port nor unix:path")
        return cls(host.strip("[]"), int(port))

    def is_same_place(self, other: "Address") -> bool:
        """Return whether a client of `other` reaches a listener of this address. Looks up names; may block."""
        if self.path is not None or other.path is not None:
            paths = [None if each.path is None else realpath(each.path) for each in (self, other)]
            return paths[0] == paths[1]
        if self.port != other.port or self.port == 0:
            return False
        own, others = _resolved(self.host), _resolved(other.host)
        listens_everywhere = any(each.is_unspecified for each in own)
        return bool(own & others) or (
            listens_everywhere and any(each.is_loopback or each.is_unspecified for each in others)
        )

    @property
    def is_of_this_machine(self) -> bool:
        """Return whether only processes of this machine can reach a listener there; see `tls.is_loopback`."""
        return self.path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return join_host_port(self.host, self.port)


def _resolved(host: str) -> set[IPv4Address | IPv6Address]:
    """Return the addresses of a host; empty if it has none, which dialling or listening will report."""
    with contextlib.suppress(OSError):
        return {ip_address(found[4][0]) for found in socket.getaddrinfo(host, None)}
    return set()


class FaultProxy:
    """Listens, dials `target` for each connection, and applies rules to its frames. On one event loop.

    Without a `target` it dials the address that each client requests with HTTP's CONNECT.
    """

    def __init__(
        self,
        target: Address | None,
        rules: Sequence[FaultRule],
        seed: int = 0,
        clock: Clock | None = None,
        on_fault: OnFault = lambda number, fault: None,
        on_error: OnError = lambda text: None,
    ) -> None:
        self.target: Final = target
        self._rules = tuple(rules)
        self._seed = seed
        self._clock = clock or SystemClock()
        self._on_fault = on_fault
        self._on_error = on_error
        self._server: asyncio.Server | None = None
        self._socket_file: tuple[str, int] | None = None  # path and inode
        self._serving: set[asyncio.Task[Any]] = set()
        self.injectors: Final[list[FaultInjector]] = []

    @property
    def open_count(self) -> int:
        """Number of open connections."""
        return len(self._serving)

    async def listen(self, address: Address) -> Address:
        """Start accepting; return the address, with the port chosen for port 0. OSError.

        A socket file with a listener is not replaced; one that its listener left behind is.
        """
        if address.path is not None:
            if await _is_answered(address.path):
                reason = "a listener answers there: move that socket aside first"
                raise OSError(errno.EADDRINUSE, reason)
            self._server = await asyncio.start_unix_server(self._accepted, address.path)
            self._socket_file = (address.path, os.stat(address.path).st_ino)
            return address
        self._server = await asyncio.start_server(self._accepted, address.host, address.port)
        host, port = self._server.sockets[0].getsockname()[:2]
        return Address(host, port)

    async def close(self) -> None:
        """Stop accepting connections, and cut the open ones."""
        if self._server is not None:
            self._server.close()
        if self._socket_file is not None:
            path, inode = self._socket_file
            # Unless another process listens there by now.
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == inode:
                    os.unlink(path)
            self._socket_file = None
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.injectors)
        injector = FaultInjector(self._rules, f"{self._seed}:{number}")
        self.injectors.append(injector)
        served = self._serve(number, injector, reader, writer)
        spawn(served, asyncio.get_running_loop(), f"fault proxy {number}", self._serving)

    async def _serve(
        self,
        number: int,
        injector: FaultInjector,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        far_writer: asyncio.StreamWriter | None = None
        target = self.target
        try:
            if target is None:
                target = await _wanted(reader)
            far_reader, far_writer = await _dial(target)
            if self.target is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            readers = {Direction.FORWARD: reader, Direction.BACKWARD: far_reader}
            writers = {Direction.FORWARD: far_writer, Direction.BACKWARD: writer}
            connection = _Connection(
                injector, self._clock, readers, writers, lambda fault: self._on_fault(number, fault)
            )
            await connection.run()
        except OSError as error:
            self._on_error(f"connection {number}: {target} cannot be reached: {error}")
            if self.target is None:
                await _refuse(writer, error)
        except _NoConnectError as error:
            self._on_error(f"connection {number}: {error}")
        except ProtocolError as error:
            self._on_error(f"connection {number}: {error}")
        finally:
            for open_writer in (writer, far_writer):
                if open_writer is not None:
                    open_writer.transport.abort()


class _NoConnectError(Exception):
    """Raised if the client of the proxy did not name its target by a CONNECT request."""


async def _wanted(reader: asyncio.StreamReader) -> Address:
    """Read an HTTP request up to its end. Raises _NoConnectError."""
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        method, authority, _ = request.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
        if method == "CONNECT":
            return Address.parse(authority)
    except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    raise _NoConnectError(f"the client sent no CONNECT request: set '{PROXY.key}', or give --to")


async def _dial(target: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if target.path is not None:
        return await asyncio.open_unix_connection(target.path)
    return await asyncio.open_connection(target.host, target.port)


async def _refuse(writer: asyncio.StreamWriter, reason: OSError) -> None:
    """Send the error to the client, which may have disconnected."""
    text = str(reason).encode("latin-1", "replace").replace(b"\r", b" ").replace(b"\n", b" ")
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(b"HTTP/1.1 502 " + text + b"\r\n\r\n")
        async with asyncio.timeout(_FLUSH_TIMEOUT_S):
            writer.close()
            await writer.wait_closed()


async def _is_answered(path: str) -> bool:
    """Return whether a listener answers at a Unix socket."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True


class _Connection:
    """One connection: a task per direction that reads, and one per direction that writes."""

    def __init__(
        self,
        injector: FaultInjector,
        clock: Clock,
        readers: dict[Direction, asyncio.StreamReader],
        writers: dict[Direction, asyncio.StreamWriter],
        on_fault: Callable[[FaultApplied], None],
    ) -> None:
        self._injector = injector
        self._clock = clock
        self._readers = readers
        self._writers = writers
        self._on_fault = on_fault
        self._timer: asyncio.TimerHandle | None = None
        self._outgoing: dict[Direction, deque[Deliver | EndStream]] = {
            direction: deque() for direction in Direction
        }
        self._unsent_bytes = dict.fromkeys(Direction, 0)
        self._changed = {direction: asyncio.Event() for direction in Direction}
        self._has_room = asyncio.Event()
        self._is_over = asyncio.Event()
        self._ended: set[Direction] = set()
        self._error: ProtocolError | None = None

    async def run(self) -> None:
        """Serve until both sides have ended or a rule cut the connection. ProtocolError."""
        try:
            async with asyncio.TaskGroup() as group:
                running = [
                    group.create_task(serve(direction))
                    for direction in Direction
                    for serve in (self._read, self._write)
                ]
                await self._is_over.wait()
                for task in running:
                    task.cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if self._error is not None:
            raise self._error
        await self._flush()

    async def _read(self, direction: Direction) -> None:
        lane = self._injector.lanes[direction]
        while True:
            while (
                lane.held_bytes > HELD_BYTES_MAX or self._unsent_bytes[direction] > UNSENT_BYTES_MAX
            ):
                self._has_room.clear()
                await self._has_room.wait()
            try:
                data = await self._readers[direction].read(_READ_BYTES)
            except OSError:
                data = b""
            now_ns = self._clock.monotonic_ns()
            if not data:
                self._perform(self._injector.ended(direction, now_ns))
                return
            try:
                self._perform(self._injector.received(direction, data, now_ns))
            except ProtocolError as error:
                self._error = error
                self._is_over.set()
                return

    async def _write(self, direction: Direction) -> None:
        outgoing, writer = self._outgoing[direction], self._writers[direction]
        while True:
            while not outgoing:
                self._changed[direction].clear()
                await self._changed[direction].wait()
            action = outgoing.popleft()
            if isinstance(action, EndStream):
                # A peer that has disconnected need not be informed.
                with contextlib.suppress(OSError):
                    if not writer.transport.is_closing() and writer.can_write_eof():
                        writer.write_eof()
                self._ended.add(direction)
                if len(self._ended) == len(self._writers):
                    self._is_over.set()
                continue
            step = action.piece_bytes or len(action.data)
            for start in range(0, len(action.data), step):
                await self._send(writer, action.data[start : start + step])
                if action.piece_bytes:
                    # A turn of the loop for each, or they would leave together.
                    await asyncio.sleep(0)
            self._unsent_bytes[direction] -= len(action.data)
            self._has_room.set()

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if writer.transport.is_closing():
            return
        writer.write(data)
        # Who reads from this socket notices the same and ends the connection.
        with contextlib.suppress(OSError):
            await writer.drain()

    async def _flush(self) -> None:
        """Close both sides after the data written to them, for as long as they read it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT_S):
                for writer in self._writers.values():
                    writer.close()
                await asyncio.gather(
                    *(writer.wait_closed() for writer in self._writers.values()),
                    return_exceptions=True,
                )

    def _tick(self) -> None:
        self._timer = None
        self._perform(self._injector.time_passed(self._clock.monotonic_ns()))

    def _perform(self, actions: list[ProxyAction]) -> None:
        for action in actions:
            match action:
                case Deliver() | EndStream():
                    self._outgoing[action.direction].append(action)
                    self._changed[action.direction].set()
                    if isinstance(action, Deliver):
                        self._unsent_bytes[action.direction] += len(action.data)
                case FaultApplied():
                    self._on_fault(action)
                case CutConnection():
                    self._cut()
        self._has_room.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ns = self._injector.next_due_ns
        if due_ns is not None:
            delay_s = max(0, due_ns - self._clock.monotonic_ns()) / 1_000_000_000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _cut(self) -> None:
        # What passed before the cut still leaves: the part of the frame that the rule let through.
        for direction, outgoing in self._outgoing.items():
            for action in outgoing:
                if isinstance(action, Deliver):
                    self._writers[direction].write(action.data)
            outgoing.clear()
        self._is_over.set()


def status_line(
    elapsed_s: float, open_count: int, injectors: Sequence[FaultInjector], *, with_frames: bool
) -> str:
    """Return one line: connections, frames and bytes per direction, faults so far, bytes held."""
    parts = [f"{elapsed_s:5.0f} s", f"{open_count} open of {len(injectors)}"]
    for direction in Direction:
        lanes = [injector.lanes[direction] for injector in injectors]
        frames: Counter[str] = Counter()
        for lane in lanes:
            frames.update(lane.frame_counts)
        size_bytes = sum(lane.byte_count for lane in lanes)
        text = f"{_ARROWS[direction]} {frames.total():,} frames {binary_size_text(size_bytes)}"
        if with_frames and frames:
            text += " (" + ", ".join(f"{name} {n:,}" for name, n in sorted(frames.items())) + ")"
        parts.append(text)
    faults: Counter[str] = Counter()
    for injector in injectors:
        faults.update(injector.fault_counts)
    parts.append(", ".join(f"{word} {n:,}" for word, n in sorted(faults.items())) or "no fault yet")
    held_bytes = sum(injector.held_bytes for injector in injectors if not injector.is_cut)
    if held_bytes:
        parts.append(f"holds {binary_size_text(held_bytes)}")
    return " | ".join(parts)


def binary_size_text(size_bytes: int) -> str:
    """Format a size for people: `950 B`, `12.3 KiB`, `1.2 GiB`."""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
