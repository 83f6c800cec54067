"""Runs the examples of an unpacked PyFlink with `pyflink` changed to `headrace`, and compares what both print.

    python tools/run_pyflink_examples.py FOLDER_PYFLINK [--pyflink-python INTERPRETER_THAT_HAS_PYFLINK]

Left out are examples that need a service (those in `connectors`), and those of NOT_HERE. Ours run by `headrace run`,
which keeps the engine's own logs off standard output. Lines are compared without the number of the subtask that printed
them, and floating numbers to seven digits: state of `Types.FLOAT()` has these 32 bits here at once, in PyFlink only
once it has been stored. Without an interpreter that has PyFlink the examples only run.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
TIMEOUT_S: Final = 120
_SUBTASK: Final = re.compile(r"^\d+> ")
_FLOATING: Final = re.compile(r"\d+\.\d+")
NOT_HERE: Final = {
    "remote_model_inference": "Table API",
    "streaming_word_count": "Table API",
    "word_count": "BATCH mode",
}
_CHATTER: Final = ("Using Any for", "No module named", "PYFLINK_CYTHON_ENABLED")


def main() -> int:
    """Print a line per example; the exit code is 1 where one failed or printed something else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pyflink", type=Path, help="the folder pyflink of an unpacked wheel")
    parser.add_argument(
        "--pyflink-python", type=Path, help="an interpreter that runs them as they are"
    )
    arguments = parser.parse_args()
    examples: Path = arguments.pyflink / "examples" / "datastream"
    outcomes = [
        _outcome(example, arguments.pyflink_python)
        for example in sorted(examples.rglob("*.py"))
        if "connectors" not in example.parts and example.stem not in NOT_HERE
    ]
    for name, why in NOT_HERE.items():
        print(f"{name}: left out, {why}")
    return int(any(outcome not in ("the same", "ran") for outcome in outcomes))


def _outcome(example: Path, peer: Path | None) -> str:
    with tempfile.TemporaryDirectory(prefix="examples-") as folder:
        changed = Path(folder) / example.name
        text = example.read_text(encoding="utf-8")
        changed.write_text(re.sub(r"\bpyflink\b", "headrace", text), encoding="utf-8")
        ours = _printed([sys.executable, "-m", "headrace", "run", str(changed)])
        if isinstance(ours, str) or peer is None:
            outcome = f"failed: {ours}" if isinstance(ours, str) else "ran"
        else:
            theirs = _printed([str(peer), str(example)])
            outcome = "the same" if ours == theirs else f"{ours} instead of {theirs}"
    print(f"{example.stem}: {outcome}", flush=True)
    return outcome


def _printed(command: list[str]) -> list[str] | str:
    """Return the lines that a program, the last word of the command, prints, sorted, or its error in a line."""
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
            cwd=Path(command[-1]).parent,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it still ran after {TIMEOUT_S} s"
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return next((line for line in said if line.startswith("error: ")), said[-1])
    lines = [one for one in done.stdout.splitlines() if not one.startswith(_CHATTER)]
    return sorted(_FLOATING.sub(_to_seven_digits, _SUBTASK.sub("", line)) for line in lines)


def _to_seven_digits(found: re.Match[str]) -> str:
    return f"{float(found[0]):.7g}"


if __name__ == "__main__":
    sys.exit(main())
