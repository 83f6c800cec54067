"""Reads the public names of an unpacked PyFlink and keeps them as facts in tools/pyflink_names.json.

    python tools/read_pyflink.py FOLDER_PYFLINK [--older FOLDER_PYFLINK_OF_1.20 ...]

Names, arguments and defaults are facts about an interface; no text and no code of PyFlink's is kept. They are made into
docs/generated/pyflink_parity.md and compared with ours by tests, without PyFlink. From older releases come the names
that are gone: programs that use them are told what to say instead.
"""

import argparse
import ast
import json
import re
from pathlib import Path
from typing import Any, Final

KEPT: Final = Path(__file__).with_name("pyflink_names.json")
PACKAGES: Final = ("common", "datastream")
_JAVA: Final = re.compile(r"(^|_)j(ava)?_|_java$|_java_|jvm|gateway|JavaObject|JavaFunction")
_OF_CLASSES: Final = frozenset(
    {
        "__eq__",
        "__ne__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__hash__",
        "__len__",
        "__iter__",
        "__next__",
    }
    | {
        "__getitem__",
        "__setitem__",
        "__contains__",
        "__call__",
        "__enter__",
        "__exit__",
        "__bool__",
        "__init__",
    }
    | {
        "__str__",
        "__repr__",
        "__setattr__",
        "__getattr__",
        "__add__",
        "__sub__",
        "__getstate__",
        "__setstate__",
    }
)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pyflink", type=Path, help="the folder pyflink of an unpacked wheel")
    parser.add_argument(
        "--older", type=Path, action="append", default=[], help="that of an older release"
    )
    arguments = parser.parse_args()
    root: Path = arguments.pyflink
    version = re.search(
        r'__version__ = "([^"]+)"', (root / "version.py").read_text(encoding="utf-8")
    )
    assert version is not None, f"{root}/version.py names no version"
    modules = _modules(root)
    found = {"version": version.group(1), "modules": modules, "gone": {}}
    for older in arguments.older:
        for module, names in _modules(older).items():
            for name, members in names.items():
                _add_gone(found, module, name, members)
    KEPT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{KEPT}: {sum(map(len, modules.values()))} names in {len(modules)} modules")


def _modules(root: Path) -> dict[str, Any]:
    """Return the names of every module that has any, by its name below `pyflink`."""
    found = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): _names(
            file
        )
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
        if "tests" not in file.parts
    }
    return {name: names for name, names in found.items() if names}


def _add_gone(found: dict[str, Any], module: str, name: str, members: Any) -> None:
    """Keep of an older class what the newer one lacks: itself (None), or some of its methods."""
    now = found["modules"].get(module, {})
    if name not in now:
        found["gone"].setdefault(module, {})[name] = None
    elif isinstance(members, dict) and isinstance(now[name], dict):
        gone = {one for one in members if one not in now[name] and "__" not in one}
        if gone:
            kept = found["gone"].setdefault(module, {}).setdefault(name, [])
            found["gone"][module][name] = sorted({*kept, *gone})


def _names(file: Path) -> dict[str, Any]:
    """Return what a module exports: None, a function's arguments, or a class's members."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    exported = _exported(tree)
    found: dict[str, Any] = dict.fromkeys(exported)
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and (
            node.name in exported or not (exported or node.name.startswith("_"))
        ):
            is_class = isinstance(node, ast.ClassDef)
            found[node.name] = _members(node) if is_class else _arguments(node)
    return {name: of for name, of in found.items() if not _JAVA.search(name)}


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(ast.literal_eval(one)) for one in getattr(node.value, "elts", [])]
    return []


def _members(node: ast.ClassDef) -> dict[str, Any]:
    """Return the public methods with their arguments, and None for constants and properties."""
    found: dict[str, Any] = {}
    for one in node.body:
        if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
            found |= {f"{one.name}.{name}": of for name, of in _members(one).items()}
            found[one.name] = None
        elif isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if one.name.startswith("_") and one.name not in _OF_CLASSES:
                continue
            is_property = any("property" in ast.unparse(way) for way in one.decorator_list)
            found[one.name] = None if is_property else _arguments(one)
        elif isinstance(one, ast.Assign):
            constants = [to.id for to in one.targets if isinstance(to, ast.Name)]
            found |= dict.fromkeys(name for name in constants if not name.startswith("_"))
    return {name: of for name, of in found.items() if not _is_of_java(name, of)}


def _is_of_java(name: str, of: Any) -> bool:
    """Whether a method hands over, or takes, nothing but a Java object: such names are no part of the Python API."""
    if _JAVA.search(name):
        return True
    return name == "__init__" and bool(_JAVA.search(of))


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the arguments as Python says them, without annotations and the first one of a method."""
    arguments = node.args
    for one in [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]:
        if one is not None:
            one.annotation = None
    text = ast.unparse(arguments)
    return re.sub(r"^(self|cls)(, |$)", "", text)


if __name__ == "__main__":
    main()
