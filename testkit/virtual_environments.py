"""Creates virtual environments on top of this one, or empty ones, and archives of them."""

import shutil
import site
import subprocess
import sys
from pathlib import Path


def virtual_environment(folder: Path, *, has_packages: bool) -> Path:
    """Create a virtual environment, with the packages of this one or with none; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if has_packages:
        [packages] = folder.glob("lib/python*/site-packages")
        lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
        (packages / "shared.pth").write_text("\n".join(lines))
    return folder / "bin" / "python"


def archive(folder: Path) -> Path:
    """Pack a folder under its own name, with the contents of linked files, as `zip -r` does."""
    return Path(shutil.make_archive(str(folder), "zip", folder.parent, folder.name))
