"""RowSelection: what makes rows stay of their window. `extreme_rows.py` and `ranked_rows.py` hold the two there are."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.operators.columns.group_codes import Codes


class RowSelection(ABC):
    """Which rows stay. `state_name`: of what is kept, in snapshots."""

    state_name: ClassVar[str]

    @abstractmethod
    def staying(
        self, rows: pa.Table, slice_codes: Codes, slice_count: int
    ) -> npt.NDArray[np.bool_]:
        """Return which rows stay among those of equal key and slice, shape (num_rows,)."""

    def ordered(self, due: pa.Table) -> pa.Table:
        """Return rows that go out, in order of windows and then of arrival, in another order within each window."""
        return due
