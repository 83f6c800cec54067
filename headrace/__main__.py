"""The command line: entry point of the console script `headrace`, and of `python -m headrace` where that is not found.

Ctrl-C counts from the first moment, before the modules of the commands are there.
"""

import os
import signal
from types import FrameType

_EXIT_INTERRUPTED = 128 + signal.SIGINT


def main() -> None:
    """Run a command and exit with its code."""
    previous = signal.getsignal(signal.SIGINT)
    # An interruption amid an import is an exception of any kind by the time it is out, and nothing has begun that had
    # to be ended in order.
    if previous is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from headrace.cli.main import main as run_command

    signal.signal(signal.SIGINT, previous)
    run_command()


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"interrupted\n")
    os._exit(_EXIT_INTERRUPTED)


if __name__ == "__main__":  # whoever looks for all options imports every module
    main()
