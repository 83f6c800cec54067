"""Pages written by hand, with parts made from the code.

A part stands between two marks:

    <!-- made from the code: NAME -->
    …
    <!-- end: NAME -->

`make docs` replaces what stands between the marks; the rest of the page is nobody's but its author's.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

_PART: Final = re.compile(
    r"(<!-- made from the code: ([\w-]+) -->\n)(.*?)(<!-- end: ([\w-]+) -->\n)", re.DOTALL
)


def embed(page: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return `page` with its parts made anew. ValueError where marks and `parts` do not fit each other."""
    found: list[str] = []

    def replace(match: re.Match[str]) -> str:
        begin, name, _, end, end_name = match.groups()
        if name != end_name or name not in parts:
            raise ValueError(f"the part '{name}' ends as '{end_name}', or nobody makes it")
        found.append(name)
        return f"{begin}\n{parts[name]().rstrip()}\n\n{end}"

    embedded = _PART.sub(replace, page)
    if sorted(found) != sorted(parts) or page.count("<!-- made from") != len(found):
        raise ValueError(f"there are marks for {sorted(found)}, and parts {sorted(parts)}")
    return embedded
