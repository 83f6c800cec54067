"""RefusalLog: tells of each peer that was refused once for each reason, so that nobody fills a log by trying again."""

import logging
import re
from typing import Final

KNOWN_MAX: Final = 256
"""How many refusals are remembered; the oldest may be told again."""
_NUMBER: Final = re.compile(r"\d+")


class RefusalLog:
    """The refusals of one listener. Peers are told apart by their hosts: each connection comes from another port."""

    def __init__(self, logger: logging.Logger, what: str, known_max: int = KNOWN_MAX) -> None:
        """`what` is refused: a word for people, such as `call`."""
        self._logger: Final = logger
        self._what: Final = what
        self._known_max: Final = known_max
        self._known: dict[tuple[str, str], None] = {}

    def tell(self, host: str, reason: str) -> None:
        """Somebody at `host` was refused."""
        kind = host, _NUMBER.sub("#", reason)
        if kind in self._known:
            return
        self._known[kind] = None
        if len(self._known) > self._known_max:
            del self._known[next(iter(self._known))]
        self._logger.warning(
            "%s from %s refused: %s (the same from there is not told again)",
            self._what,
            host,
            reason,
        )
