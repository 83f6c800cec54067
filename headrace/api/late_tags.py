"""Tags under which late records go to a side output: checked, named in specs and declared on operators."""

from headrace.api.transformations import OperatorTransformation
from headrace.core.record_batch import BatchType
from headrace.functions.process import OutputTag


def check_tag(output_tag: object) -> OutputTag:
    """Return `output_tag`; TypeError unless it is one."""
    if not isinstance(output_tag, OutputTag):
        raise TypeError(f"an OutputTag is needed, not {output_tag!r}")
    return output_tag


def id_of(tag: OutputTag | None) -> str | None:
    """Return what specs name the tag by; None, where late records are dropped, stays None."""
    return None if tag is None else tag.tag_id


def declare_late_outputs(operator: OperatorTransformation, *tags: OutputTag | None) -> None:
    """Have `operator` emit late records, which are its own input, as the types that the tags say."""
    for tag in tags:
        if tag is not None:
            operator.declare_side_output(tag.tag_id, BatchType(tag.type_info))
