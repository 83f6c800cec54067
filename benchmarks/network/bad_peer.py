"""A peer that does harm to a producer, as a process: `python -m benchmarks.network.bad_peer HARM LOCATION NUMBER`.

HARM: `stalled` asks for partition NUMBER and never reads what it is sent; `dripping` sends its frames byte by byte;
`garbage` proves itself and then sends bytes that are no frames, again and again; `strangers` sends such bytes without
having proved itself. Goes on until its standard input ends.
"""

import contextlib
import os
import select
import socket
import sys
from collections.abc import Callable

import msgspec

from benchmarks.network.endpoints import SECRET, partition_id
from headrace.core.randomness import SeededRandom
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.blocking_connection import BlockingConnection
from headrace.network.errors import NetworkError
from headrace.network.framing import encode
from headrace.network.wire import AddCredit, PartitionRequest

PAUSE_S = 0.005
GARBAGE = os.urandom(64 << 10)


def main() -> None:
    harm, location_json, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    location = msgspec.json.decode(location_json, type=TaskManagerLocation)
    {"stalled": stall, "dripping": drip, "garbage": insult, "strangers": intrude}[harm](
        location, number
    )


def is_over(wait_s: float) -> bool:
    """Whether standard input has ended, looked at for a while."""
    return bool(select.select([sys.stdin], [], [], wait_s)[0])


def connected(location: TaskManagerLocation) -> BlockingConnection:
    return BlockingConnection(location, f"bad-{os.getpid()}", SECRET, SeededRandom(os.getpid()))


def request(number: int) -> PartitionRequest:
    return PartitionRequest(0, partition_id(number), 0, 2, 1000, 1 << 20)


def stall(location: TaskManagerLocation, number: int) -> None:
    connection = connected(location)
    connection.send(request(number))
    connection.send(AddCredit(0, 900))
    while not is_over(1):
        pass


def drip(location: TaskManagerLocation, number: int) -> None:
    connection = connected(location)
    message = b"".join(bytes(part) for part in encode(request(number)))
    credit = b"".join(bytes(part) for part in encode(AddCredit(0, 1)))
    with contextlib.suppress(OSError):
        for position in range(len(message)):
            connection._socket.sendall(message[position : position + 1])
        turn = 0
        while not is_over(PAUSE_S):
            connection._socket.sendall(credit[turn % len(credit) :][:1])
            turn += 1


def repeatedly(harm: Callable[[], None]) -> None:
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
            connection.abort()
            connection.close()

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


if __name__ == "__main__":
    main()
