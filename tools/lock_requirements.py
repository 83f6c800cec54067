"""Writes requirements/*.txt anew: exact versions of what pyproject.toml asks for, with the hashes of all their files.

Versions stay where they are unless pyproject.toml, or a package that is named (`--upgrade`), asks for others. Needs uv;
docs/adr/0002-lock-files.md says why these files and no others.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
BASE: Final = "requirements/base.txt"
DEV: Final = "requirements/dev.txt"
DOCS: Final = "requirements/docs.txt"
FLINK: Final = "requirements/flink.txt"
EXTRAS: Final = (
    "dev", "demo", "java", "tls", "kafka", "postgres", "rocksdb", "metrics", "zookeeper", "kubernetes", "s3",
)  # fmt: skip
_COMPILE: Final = (
    "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-emit-index-url",
    "--no-header", "--no-annotate", "--generate-hashes",
)  # fmt: skip
_HOST: Final = re.compile(r"https?:|--(extra-)?index-url|--find-links")


def main() -> int:
    """Write the files: each is held to the versions of the one before it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--upgrade", action="append", default=[], metavar="PACKAGE")
    upgrades = [f"--upgrade-package={name}" for name in parser.parse_args().upgrade]
    extras = [f"--extra={name}" for name in EXTRAS]
    for file, more in (
        (BASE, ["pyproject.toml"]),
        (DEV, ["pyproject.toml", *extras, "-c", BASE]),
        (DOCS, ["--group", "pyproject.toml:docs", "-c", DEV]),
        (FLINK, ["--group", "pyproject.toml:flink", "--no-deps"]),
    ):
        try:
            subprocess.run([*_COMPILE, *more, *upgrades, "-o", file], cwd=ROOT, check=True)
        except FileNotFoundError:
            print(
                "uv is not installed: `pip install uv` in an environment of its own",
                file=sys.stderr,
            )
            return 1
        except subprocess.CalledProcessError as error:
            return error.returncode
        if _HOST.search((ROOT / file).read_text(encoding="ascii")):
            print(f"{file} names where packages come from: take that out", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
