"""GPUs that no machine has, which Spark finds by a script."""

from pathlib import Path


def made_up_gpus(folder: Path, *kinds: str) -> dict[str, str]:
    """Return Spark's settings for GPUs `g0` and `g1` of each `worker` or `executor`; the script is in `folder`."""
    script = folder / "find_gpus.sh"
    script.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["g0", "g1"]}'\n""")
    script.chmod(0o755)
    found: dict[str, str] = {}
    for kind in kinds:
        found[f"spark.{kind}.resource.gpu.amount"] = "2"
        found[f"spark.{kind}.resource.gpu.discoveryScript"] = str(script)
    return found
