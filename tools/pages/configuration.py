"""configuration.md: every option that any module declares."""

import importlib
from typing import Any, Final

from headrace.core.config import ConfigOption, declared_options, default_text, type_text
from tests.architecture.floor_plan import module_of, source_files
from tools.pages.markdown import table

_INTRODUCTION: Final = """\
# Configuration

Given as `-D key=value` to `headrace run`, or in the program's `Configuration`. Keys and defaults are
Flink's where the meaning is the same; keys that begin with `headrace.` are Headrace's own; keys that begin
with `spark.` are Spark's and reach the session that Headrace creates; those that begin with
`pipeline.global-job-parameters.` are the program's. On the command line any other key is an error, and so is a
value that its option cannot take. In a program's `Configuration` an unknown key is ignored with a warning, because
programs come with settings of Flink's. Those of its cluster runtime that have no meaning here are
[listed with the reason](../flink_options.md).
"""


def configuration_page() -> str:
    """All options in the order of their keys."""
    import_declarations()
    rows = [
        (
            f"`{option.key}`" + "".join(f"<br>(or `{key}`)" for key in option.deprecated_keys),
            type_text(option),
            default_text(option.default),
            f"{option.doc} {_remark_on(option)}".strip(),
        )
        for option in declared_options()
    ]
    return "\n".join([_INTRODUCTION, *table(("key", "type", "default", "meaning"), rows)]) + "\n"


def _remark_on(option: ConfigOption[Any]) -> str:
    if option.refused:
        return f"*Only the default is accepted: {option.refused}.*"
    return f"*Accepted, but has no effect: {option.unobeyed}.*" if option.unobeyed else ""


def import_declarations() -> None:
    """Import every module that declares an option: importing is what declares."""
    for file in source_files():
        if "ConfigOption(" in file.read_text(encoding="utf-8"):
            importlib.import_module(module_of(file))
