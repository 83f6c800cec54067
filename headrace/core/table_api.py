"""Flink's Table API and SQL, which are not here: their names are refused in one sentence when they are imported."""

from typing import NoReturn

from headrace.core.errors import ProgramError


def refuse_name(name: str) -> NoReturn:
    """Refuse a name; ProgramError says what to use. Stands as `__getattr__` in the modules that PyFlink has."""
    if name.startswith("_"):
        raise AttributeError(f"there is no attribute '{name}'")
    raise ProgramError(
        f"{name} belongs to Flink's Table API and SQL, which are not here: say it with streams (which have "
        "filters, joins, windows and aggregates of columns), or give DataFrames and SQL to Spark and bring the result "
        "in with from_dataframe"
    )
