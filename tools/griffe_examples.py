"""Extension of griffe: a docstring's `Example:` is shown as code, as its `Examples:` is, and not as a quotation."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Renames the section before the docstring is parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Look at every object that is collected."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
