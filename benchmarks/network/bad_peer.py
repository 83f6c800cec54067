"""A peer that does harm to a producer, as a process: `python -m benchmarks.network.bad_peer HARM LOCATION`.

HARM: `stalled` asks for a partition and never reads what it is sent; `dripping` sends its frames byte by byte;
`garbage` proves itself and then sends bytes that are no frames, again and again; `strangers` sends such bytes without
having proved itself; `flooding` proves itself and sends such bytes without end, as long as it may; `chattering` sends
signs of life without end; `overgranting` grants more credit than it said it can hold. Two are producers, to be read
from at the place that is printed: `overspending` sends without credit, `skipping` leaves a number out. `burning` harms
nobody: it takes a share of a processor, and is what the others are compared with.

Does so from each line on standard input, which is a number: of the partition, or the share in percent. Prints a line
once it has done so for the first time, or can be reached, and goes on until the next line, which ends the turn.
"""

import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Callable

import msgspec

from benchmarks.network.endpoints import SECRET, RowMaker, partition_id
from headrace.core.ids import ResourceId
from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import Role
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.batches.sealed_batch import SchemaAnnouncer, SealedBatch
from headrace.network.errors import NetworkError
from headrace.network.transport.blocking_connection import BlockingConnection
from headrace.network.wire.frames import (
    AddCredit,
    Cancel,
    Data,
    KeepAlive,
    PartitionRequest,
    Schema,
)
from headrace.network.wire.framing import Frame, encode
from headrace.network.wire.handshake import Handshake

PAUSE_S = 0.005
BURN_PERIOD_S = 0.01
PRODUCER_HARMS = ("overspending", "skipping")
GARBAGE = os.urandom(64 << 10)
ROWS = RowMaker(200, 64)


Harm = Callable[[TaskManagerLocation, int], None]


def main() -> None:
    harm = harms()[sys.argv[1]]
    location = msgspec.json.decode(sys.argv[2], type=TaskManagerLocation)
    while line := sys.stdin.readline():
        harm(location, int(line))
        sys.stdin.readline()


def harms() -> dict[str, Harm]:
    """Each by its name."""
    bad_producers = {
        name: (lambda location, number, name=name: misproduce(name)) for name in PRODUCER_HARMS
    }
    return {
        "stalled": stall,
        "dripping": drip,
        "garbage": insult,
        "strangers": intrude,
        "flooding": flood,
        "chattering": chatter,
        "overgranting": overgrant,
        "burning": burn,
        **bad_producers,
    }


def say_ready(what: str = "ready") -> None:
    print(what, flush=True)


def is_over(wait_s: float) -> bool:
    """Whether there is another line, or an end, on standard input; looked at for a while."""
    return bool(select.select([sys.stdin], [], [], wait_s)[0])


def connected(location: TaskManagerLocation) -> BlockingConnection:
    return BlockingConnection(location, f"bad-{os.getpid()}", SECRET, SeededRandom(os.getpid()))


def request(number: int) -> PartitionRequest:
    return PartitionRequest(0, partition_id(number), 0, 2, 1000, 1 << 20)


def leave(connection: BlockingConnection) -> None:
    connection.abort()
    connection.close()


def burn(location: TaskManagerLocation, percent: int) -> None:
    """Take so much of a processor, in small portions, and talk to nobody."""
    say_ready()
    began, used = time.monotonic(), time.process_time()
    while not is_over(BURN_PERIOD_S):
        due = used + (time.monotonic() - began) * percent / 100
        while time.process_time() < due:
            pass


def stall(location: TaskManagerLocation, number: int) -> None:
    connection = connected(location)
    connection.send(request(number))
    connection.send(AddCredit(0, 900))
    say_ready()
    while not is_over(1):
        pass
    leave(connection)


def drip(location: TaskManagerLocation, number: int) -> None:
    connection = connected(location)
    message = b"".join(bytes(part) for part in encode(request(number)))
    credit = b"".join(bytes(part) for part in encode(AddCredit(0, 1)))
    with contextlib.suppress(OSError):
        for position in range(len(message)):
            connection._socket.sendall(message[position : position + 1])
        say_ready()
        turn = 0
        while not is_over(PAUSE_S):
            connection._socket.sendall(credit[turn % len(credit) :][:1])
            turn += 1
    leave(connection)


def repeatedly(harm: Callable[[], None]) -> None:
    with contextlib.suppress(OSError, NetworkError):
        harm()
    say_ready()
    while not is_over(PAUSE_S):
        with contextlib.suppress(OSError, NetworkError):
            harm()


def insult(location: TaskManagerLocation, number: int) -> None:
    def once() -> None:
        connection = connected(location)
        try:
            connection._socket.sendall(GARBAGE)
            connection.receive(1)
        finally:
            leave(connection)

    repeatedly(once)


def intrude(location: TaskManagerLocation, number: int) -> None:
    def once() -> None:
        if location.unix_socket_path is not None:
            stranger = socket.socket(socket.AF_UNIX)
            stranger.connect(location.unix_socket_path)
        else:
            stranger = socket.create_connection((location.host, location.data_port))
        with stranger:
            stranger.sendall(GARBAGE)
            stranger.settimeout(1)
            while stranger.recv(4096):
                pass

    repeatedly(once)


def flood(location: TaskManagerLocation, number: int) -> None:
    pour(location, GARBAGE)


def chatter(location: TaskManagerLocation, number: int) -> None:
    sign = b"".join(bytes(part) for part in encode(KeepAlive()))
    pour(location, sign * (len(GARBAGE) // len(sign)))


def pour(location: TaskManagerLocation, content: bytes) -> None:
    """Send the same without end, as fast as it is taken, on one connection after the other."""
    is_told = False
    while not is_over(PAUSE_S if is_told else 0):
        with contextlib.suppress(OSError, NetworkError):
            connection = connected(location)
            try:
                connection._socket.settimeout(0.05)
                while not is_over(0):
                    with contextlib.suppress(TimeoutError):
                        connection._socket.sendall(content)
                    if not is_told:
                        say_ready()
                        is_told = True
            finally:
                leave(connection)
    if not is_told:
        say_ready()


def overgrant(location: TaskManagerLocation, number: int) -> None:
    def once() -> None:
        connection = connected(location)
        try:
            # Of a partition that is not there: one that is would be read once, and be gone the second time.
            connection.send(request(number + 1))
            connection.send(AddCredit(0, 2_000))
            while True:
                connection.receive(1)
        finally:
            leave(connection)

    repeatedly(once)


def misproduce(harm: str) -> None:
    """Be a producer of any partition, badly."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"bad-{os.getpid()}"
        location = TaskManagerLocation(
            ResourceId(name), "127.0.0.1", server.getsockname()[1], None, "elsewhere"
        )
        say_ready(msgspec.json.encode(location).decode())
        while True:
            ready, _, _ = select.select([sys.stdin, server], [], [])
            if sys.stdin in ready:
                return
            connection, _ = server.accept()
            with contextlib.suppress(OSError, NetworkError), connection:
                connection.settimeout(1)
                send_badly(connection, name, harm)


def send_badly(connection: socket.socket, name: str, harm: str) -> None:
    handshake = Handshake(Role.ACCEPTOR, name, SECRET, SeededRandom(name), "the reader")
    established = None
    while established is None:
        reply, established = handshake.receive(connection.recv(4096))
        connection.sendall(reply)
    if not established.rest:
        connection.recv(4096)  # Its request for channel 0.
    sealed = SealedBatch(ROWS.batch().to_arrow(), ())
    assert sealed.arrow is not None
    announcer = SchemaAnnouncer()
    schema = announcer.changed(sealed.arrow.schema)
    assert schema is not None
    frames: list[Frame] = [Schema(0, announcer.fingerprint, schema)]
    for turn in range(64):
        sequence = 2 * turn if harm == "skipping" else turn
        frames.append(
            Data(0, sequence, 1, 0, sealed.row_count, announcer.fingerprint, (), sealed.body())
        )
    connection.sendall(b"".join(bytes(part) for frame in frames for part in encode(frame)))
    # Until it is refused: the connection stays, and this peer would be idle for as long as it does.
    refusal = b"".join(bytes(part) for part in encode(Cancel(0)))
    heard = b""
    while refusal not in heard and (more := connection.recv(65536)):
        heard += more


if __name__ == "__main__":
    main()
