"""Creates wheels of one module, and copies of installed packages with other versions, for requirements of jobs."""

import zipfile
from importlib.metadata import distribution
from pathlib import Path


def wheel(folder: Path, name: str, source: str) -> Path:
    """Make a wheel of one module, version 1.0."""
    return _pack(folder, name, "1.0", {f"{name}.py": source.encode()})


def copied_wheel(folder: Path, name: str, version: str, source: str) -> Path:
    """Make a wheel of an installed package under another version, with more source at the end of its first module."""
    files = {
        str(file): Path(str(file.locate())).read_bytes()
        for file in distribution(name).files or ()
        if file.parts[0] == name and "__pycache__" not in file.parts
    }
    files[f"{name}/__init__.py"] += f"\n{source}\n".encode()
    return _pack(folder, name, version, files)


def _pack(folder: Path, name: str, version: str, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    facts = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{facts}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{facts}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{facts}/RECORD"))
    with zipfile.ZipFile(path, "w") as packed:
        for file, content in {**files, f"{facts}/RECORD": record.encode()}.items():
            packed.writestr(file, content)
    return path
