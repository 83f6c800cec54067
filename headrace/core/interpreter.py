"""What a process that is going to work for long does with its interpreter once it has loaded everything."""

import gc

import numpy as np
import pyarrow as pa


def settle_interpreter() -> None:
    """Load what the first batch would load, and leave all that is there by now out of garbage collection.

    pyarrow loads pandas, where it is installed, when it first makes an array of numpy's: half a second, in which the
    first records of a task would wait. And a full collection walks through every object of every module, 100,000 of
    them: 50 ms, in which all threads of a TaskManager stand still.
    """
    pa.array(np.empty(0))
    gc.freeze()
