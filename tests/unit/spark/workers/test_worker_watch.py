"""The watches of a worker: a hang-up of the JVM's connection and a lost parent end it, data does not."""

import os
import queue
import socket
import subprocess
import sys

from headrace.spark.workers.worker_process import (
    ParentWatch,
    connected_stream_descriptors,
    is_spark_process,
)

TIMEOUT_S = 20


def test_a_hang_up_of_the_peer_is_noticed() -> None:
    ours, peer = socket.socketpair()
    reasons: queue.Queue[str] = queue.Queue()
    watch = ParentWatch(os.getppid(), (ours.fileno(),), reasons.put)
    peer.close()
    assert "hung up" in reasons.get(timeout=TIMEOUT_S)
    watch.stop()
    ours.close()


def test_data_that_waits_is_neither_read_nor_taken_for_a_hang_up() -> None:
    ours, peer = socket.socketpair()
    reasons: queue.Queue[str] = queue.Queue()
    watch = ParentWatch(os.getppid(), (ours.fileno(),), reasons.put)
    peer.sendall(b"row")
    watch.stop()
    assert reasons.empty()
    assert ours.recv(3) == b"row"
    ours.close()
    peer.close()


def test_another_parent_is_noticed() -> None:
    reasons: queue.Queue[str] = queue.Queue()
    watch = ParentWatch(os.getppid() + 1, (), reasons.put)
    assert "parent process" in reasons.get(timeout=TIMEOUT_S)
    watch.stop()


def begun(*arguments: str) -> subprocess.Popen[bytes]:
    """A process that waits for a line. It has said something: before, its command line may not be there yet."""
    code = "print(flush=True); input()"
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process


def test_an_adopting_process_is_told_from_spark_s() -> None:
    daemon, other = begun("pyspark.daemon"), begun()
    try:
        assert is_spark_process(daemon.pid)
        assert not is_spark_process(other.pid)
    finally:
        for process in (daemon, other):
            process.communicate(b"\n", timeout=TIMEOUT_S)


def test_only_connected_stream_sockets_are_taken_for_the_jvm_s() -> None:
    ours, peer = socket.socketpair()
    listening = socket.create_server(("127.0.0.1", 0))
    found = connected_stream_descriptors()
    assert ours.fileno() in found
    assert listening.fileno() not in found
    for one in (ours, peer, listening):
        one.close()
