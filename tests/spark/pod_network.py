"""PodNetwork: pods in network namespaces of their own, as the hosts of a cluster are; and what each sends to others.

A bridge of this host joins them. Making one needs root, as every container runtime does.
Source: ip-netns(8), packet(7).
"""

import socket
import struct
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from headrace.core.randomness import system_random
from headrace.core.threads import start_thread

_EVERY_PROTOCOL: Final = 3
_FRAME_MAX: Final = 1 << 17
"""Bytes: network cards without hardware take whole segments of 64 KiB."""
_LOOK_S: Final = 0.2
_RECEIVE_BUFFER: Final = 64 << 20
_ETHERNET: Final = 14
_IPV4: Final = b"\x08\x00"
_TCP: Final = 6

Flow = tuple[str, int, str, int]
"""Address and port of who sends, and of who receives."""


class PodNetwork:
    """`gateway` is this host's address in it. `close` removes all of it, once the processes in it have ended."""

    def __init__(self) -> None:
        number = system_random().getrandbits(16)
        self._name: Final = f"pods{number:04x}"
        # A range for measurements, of which no other host has an address.
        self._prefix: Final = f"198.{18 + number % 2}.{number >> 8}"
        self.gateway: Final = f"{self._prefix}.1"
        self._namespaces: list[str] = []
        self._taps: list[_Tap] = []
        self._lock: Final = threading.Lock()
        _ip("link", "add", self._name, "type", "bridge")
        _ip("address", "add", f"{self.gateway}/24", "dev", self._name)
        _ip("link", "set", self._name, "up")

    def join(self) -> tuple[str, tuple[str, ...]]:
        """Make a host; return its address, and what a command begins with that runs there."""
        with self._lock:
            number = len(self._namespaces) + 1
            namespace, outside = f"{self._name}-{number}", f"{self._name}-{number}"
            self._namespaces.append(namespace)
        address = f"{self._prefix}.{number + 1}"
        _ip("netns", "add", namespace)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", outside, "master", self._name, "up")
        # Its own processes speak over loopback.
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        self._taps.append(_Tap(outside, address, self._prefix, self.gateway))
        return address, ("nsenter", f"--net=/run/netns/{namespace}", "--")

    def flows(self) -> dict[Flow, bytes]:
        """Return what pods have sent to each other, by connection and direction, as it was on the wire."""
        return {flow: b"".join(sent) for tap in self._taps for flow, sent in tap.sent.items()}

    def close(self) -> None:
        for tap in self._taps:
            tap.close()
        for namespace in self._namespaces:
            _ip("netns", "delete", namespace)
        _ip("link", "delete", self._name)


@contextmanager
def pod_network() -> Generator[PodNetwork]:
    """Give a network that ends with the block."""
    network = PodNetwork()
    try:
        yield network
    finally:
        network.close()


class _Tap:
    """Keeps what one pod sends to others over TCP."""

    def __init__(self, interface: str, address: str, prefix: str, gateway: str) -> None:
        self.sent: Final[dict[Flow, list[bytes]]] = {}
        self._address: Final = address
        self._prefix: Final = prefix
        self._gateway: Final = gateway
        self._has_ended: Final = threading.Event()
        self._socket: Final = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL)
        )
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._socket.bind((interface, 0))
        self._socket.settimeout(_LOOK_S)
        self._thread: Final = start_thread(f"tap-{interface}", self._run)

    def close(self) -> None:
        self._has_ended.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._has_ended.is_set():
            try:
                frame = self._socket.recv(_FRAME_MAX)
            except TimeoutError:
                continue
            except OSError:
                return  # its interface has gone
            self._look_at(frame)

    def _look_at(self, frame: bytes) -> None:
        packet = frame[_ETHERNET:]
        if frame[12:_ETHERNET] != _IPV4 or packet[9] != _TCP:
            return
        source, target = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
        is_to_pod = target.startswith(f"{self._prefix}.") and target != self._gateway
        if source != self._address or not is_to_pod:
            return
        (length,) = struct.unpack("!H", packet[2:4])
        # Large segments that a card would have cut have no length.
        segment = packet[(packet[0] & 15) * 4 : length or None]
        source_port, target_port = struct.unpack("!HH", segment[:4])
        payload = segment[(segment[12] >> 4) * 4 :]
        if payload:
            flow = (source, source_port, target, target_port)
            self.sent.setdefault(flow, []).append(payload)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
