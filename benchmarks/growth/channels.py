"""What does a row cost by the number of channels of a keyed edge?

Rows of 200 bytes from one producer over a Unix socket into one gate with all the channels, in two processes, as fast
as they take them; processor time of both per row. `full` batches show what a channel as such costs; with a `timeout`
of 100 ms there are ever fewer rows to a batch, and it is the batches that cost.

    python -m benchmarks.growth.channels [--channels 4 16 … 4096]
"""

import argparse
import os

from benchmarks.growth.series import keep, measure_series
from benchmarks.network.endpoints import RowMaker
from benchmarks.network.matrix import measure_throughput
from benchmarks.network.peer import UNIX, Peers

CHANNELS = (4, 16, 64, 256, 1024, 4096)
ROW_BYTES = 200
SECONDS_MIN, CHANNELS_PER_SECOND = 2.0, 400
"""Full batches come in waves, as all channels fill alike: thousands of them take seconds for one."""
TIMEOUTS_MS = {"full": -1, "timeout": 100}


def cost_us(channel_count: int, timeout_ms: int) -> float:
    """Return microseconds of processor time per row."""
    cell = {"row_bytes": ROW_BYTES, "channels": channel_count, "timeout_ms": timeout_ms}
    seconds = SECONDS_MIN + channel_count / CHANNELS_PER_SECOND
    with Peers(UNIX) as peers:
        found = measure_throughput(peers, RowMaker(ROW_BYTES), cell, seconds)
    return found["cpu_s_per_mrow"]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--channels", type=int, nargs="+", default=CHANNELS)
    arguments = parser.parse_args()
    load_before = round(os.getloadavg()[0], 2)
    series = [
        measure_series(
            "channels",
            name,
            "channels",
            "µs per row",
            0.0,
            arguments.channels,
            lambda count, timeout_ms=timeout_ms: cost_us(count, timeout_ms),
        )
        for name, timeout_ms in TIMEOUTS_MS.items()
    ]
    keep(series, load_before)


if __name__ == "__main__":
    main()
