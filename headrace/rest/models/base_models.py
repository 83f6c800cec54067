"""Bases of the REST models: Flink uses JSON names in kebab, camel or snake case, one of them per shape."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from headrace.core.ids import ID_PATTERN

NOT_A_NUMBER: Final = "NaN"
WHOLE_ID: Final = f"^{ID_PATTERN}$"
"""Pattern of a text that is an id, in paths, queries and bodies."""


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _is_none(value: Any) -> bool:
    return value is None


KEBAB: Final = ConfigDict(alias_generator=_kebab, populate_by_name=True, extra="ignore")
"""Configuration of dataclasses that replace KebabModels in answers with thousands: created in a third of the time."""


class KebabModel(BaseModel):
    """A shape whose JSON names are like `start-time`."""

    model_config = KEBAB


class CamelModel(BaseModel):
    """A shape whose JSON names are like `startTime`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore")


class SnakeModel(BaseModel):
    """A shape whose JSON names are like `start_time`."""

    model_config = ConfigDict(populate_by_name=True, extra="ignore")


def _boolean(value: Any) -> bool:
    """Return a boolean from a value that Flink's mapper accepts: a boolean, whole number, or `true` or `false`."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, int):
        return bool(value)
    raise ValueError(f"only true or false is recognized, not {value!r}")


RequestedBoolean = Annotated[bool, BeforeValidator(_boolean)]
"""A boolean of a request's body. Pydantic's own parser also accepts `t`, `yes` and `on` as true."""


def left_out() -> Any:
    """Return the default of a field that is absent if it is None."""
    return Field(default=None, exclude_if=_is_none)


Milliseconds = Annotated[
    int, Field(description="epoch milliseconds; -1: not yet, 0: never entered")
]
"""A time in epoch milliseconds."""

TriggerId = Annotated[str, WithJsonSchema({"type": "string", "pattern": WHOLE_ID})]
"""The caller's own id of an operation; the handler checks it."""
