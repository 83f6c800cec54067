"""Keys of options are kept: files and programs hold them. Whoever adds or withdraws one edits option_keys.txt."""

from typing import Final

from headrace.core.config import declared_options
from tests.architecture.floor_plan import ROOT
from tools.pages.configuration import import_declarations

LIST: Final = ROOT / "tests" / "architecture" / "option_keys.txt"


def test_the_keys_of_options_and_their_older_spellings_are_those_of_the_list() -> None:
    import_declarations()
    keys = {key for option in declared_options() for key in (option.key, *option.deprecated_keys)}
    own = {key for key in keys if not key.startswith("test.")}
    assert own == set(LIST.read_text(encoding="utf-8").split())
