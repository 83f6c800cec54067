"""Functions of programs with cached streams, that count, wait or fail."""

import threading

COUNT = 1000


ALL = [2 * n for n in range(COUNT)]


WAIT_S = 30.0


class Seen:
    """How many records went through functions of this process; tasks of a MiniCluster are its threads."""

    lock = threading.Lock()
    count = 0

    @classmethod
    def take(cls) -> int:
        with cls.lock:
            count, cls.count = cls.count, 0
        return count


class Gate:
    """Holds up records of this process until it is opened."""

    event = threading.Event()

    @classmethod
    def closed(cls) -> "type[Gate]":
        cls.event.clear()
        return cls

    @classmethod
    def open(cls) -> None:
        cls.event.set()

    @staticmethod
    def passing(n: int) -> int:
        from tests.integration.programs.cached_stream_functions import Gate

        assert Gate.event.wait(WAIT_S)
        return n


class FailingOnce:
    has_failed = False

    @staticmethod
    def call(n: int) -> int:
        from tests.integration.programs.cached_stream_functions import FailingOnce

        if n == ALL[-1] and not FailingOnce.has_failed:
            FailingOnce.has_failed = True
            raise ValueError("once")
        return n
