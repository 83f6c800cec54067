"""Where a proxy listens and leads: `host:port` or `unix:path`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    """A TCP address, or a Unix socket where `path` is set."""

    host: str = ""
    port: int = 0
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read an address; ValueError."""
        if text.startswith("unix:") and len(text) > 5:
            return cls(path=text[5:])
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise ValueError(f"'{text}' is neither host:port nor unix:path")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
