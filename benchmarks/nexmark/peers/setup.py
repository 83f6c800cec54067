"""Makes the environments of the peers, each once, with pinned versions.

    python -m benchmarks.nexmark.peers.setup [flink polars ...]

They lie beside our own as `.venv-<name>`, together some 3 GB. Flink and Spark need a Java besides: JAVA_HOME, `java` on
PATH, or the wheel of the extra `headrace[java]`.
"""

import argparse
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.nexmark.peers.registry import PEERS, Peer

ROOT = Path(__file__).parents[3]
MARKER = "headrace-peer.txt"
INSTALL_TIMEOUT_SECONDS = 1800


def peer_python(peer: Peer, root: Path = ROOT) -> str:
    """Return the interpreter of a peer, in an environment that is made where it is missing or has other versions."""
    if not peer.packages:
        return sys.executable
    return str(programs_of(root / peer.environment, peer.packages) / "python")


def programs_of(environment: Path, packages: Sequence[str]) -> Path:
    """Return the folder of an environment's programs; it is made where it is missing or has other versions."""
    marker = environment / MARKER
    wanted = "\n".join(packages)
    programs = environment / "bin"
    if not marker.exists() or marker.read_text() != wanted:
        print(f"installing {' '.join(packages)} into {environment.name}, once ...", flush=True)
        venv.create(environment, with_pip=True)
        install = [str(programs / "python"), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(install, check=True, timeout=INSTALL_TIMEOUT_SECONDS)
        marker.write_text(wanted)
    return programs


def main() -> None:
    """Make the environments named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", default=list(PEERS))
    for name in parser.parse_args().peers:
        print(f"{name}: {peer_python(PEERS[name])}")


if __name__ == "__main__":
    main()
