"""Specifications of windows as a program's calls make them."""

from typing import Any

from headrace.functions.specs.operator_specs import WindowSpec
from headrace.functions.windowing.assigners import WindowAssigner


def window_spec(assigner: WindowAssigner[Any, Any], **changes: Any) -> WindowSpec:
    parts: dict[str, Any] = {
        "assigner": assigner,
        "trigger": None,
        "allowed_lateness_ms": 0,
        "late_tag_id": None,
        "incremental": None,
        "window_function": None,
        "is_keyed": True,
    }
    return WindowSpec(**{**parts, **changes})
