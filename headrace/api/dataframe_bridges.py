"""Bridges from DataFrames to sources, found through entry points, so that programs need no host to be imported."""

from typing import Any, Final

from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import ProgramError
from headrace.core.types.type_info import TypeInformation
from headrace.functions.source import Source

ENTRY_POINT_GROUP: Final = "headrace.dataframe_bridges"


def dataframe_source(df: Any, event_time_column: str | None) -> tuple[Source, TypeInformation]:
    """Return the source of a DataFrame's rows and their type. ProgramError where nobody knows such DataFrames."""
    library = type(df).__module__.partition(".")[0]
    names = entry_point_names(ENTRY_POINT_GROUP)
    # A bridge is named after the library whose DataFrames it takes; Spark's library is called pyspark.
    name = next((each for each in (library, library.removeprefix("py")) if each in names), None)
    if name is None:
        known = ", ".join(names) or "none"
        raise ProgramError(
            f"from_dataframe does not know DataFrames of type {type(df).__module__}.{type(df).__qualname__}; "
            f"bridges are installed for: {known}"
        )
    return load_entry_point(ENTRY_POINT_GROUP, name)(df, event_time_column=event_time_column)
