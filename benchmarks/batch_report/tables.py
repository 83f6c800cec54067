"""Items and orders as Parquet, after TPC-H's LINEITEM and ORDERS: four items of each order, seeded.

Amounts are whole cents and hundredths, days are numbers: every engine gets sums that are exactly the same.
"""

import json
import shutil
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILE_COUNT: Final = 16
ROW_GROUP_ROWS: Final = 131_072
ITEMS_PER_ORDER: Final = 4
DAYS: Final = 2_500
SEED: Final = 42
COUNTS: Final = "counts.json"


def tables_directory(root: Path, item_count: int) -> Path:
    """Return the folder with so many items and their orders; it is made where it is not there."""
    directory = root / f"tables-{item_count}-{SEED}"
    if not (directory / COUNTS).exists():
        shutil.rmtree(directory, ignore_errors=True)
        random = np.random.default_rng(SEED)
        order_count = max(1, item_count // ITEMS_PER_ORDER)
        items = pa.table(
            {
                "order": random.integers(0, order_count, item_count),
                "status": random.integers(0, 6, item_count),
                "quantity": random.integers(1, 51, item_count),
                "price": random.integers(90_000, 10_500_000, item_count),
                "discount": random.integers(0, 11, item_count),
                "tax": random.integers(0, 9, item_count),
                "shipped": random.integers(0, DAYS, item_count),
            }
        )
        orders = pa.table(
            {
                "id": np.arange(order_count),
                "day": random.integers(0, DAYS, order_count),
                "priority": random.integers(0, 5, order_count),
            }
        )
        for kind, rows in (("item", items), ("order", orders)):
            _write(directory / kind, rows)
        (directory / COUNTS).write_text(json.dumps({"item": item_count, "order": order_count}))
    return directory


def _write(directory: Path, rows: pa.Table) -> None:
    directory.mkdir(parents=True)
    for index in range(FILE_COUNT):
        begin, end = (rows.num_rows * at // FILE_COUNT for at in (index, index + 1))
        pq.write_table(
            rows.slice(begin, end - begin),
            directory / f"part-{index:03}.parquet",
            row_group_size=ROW_GROUP_ROWS,
            compression="none",
        )
