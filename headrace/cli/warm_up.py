"""`headrace warm-up`: makes Spark start faster on this machine."""

import os
from typing import Final

import click
from rich.console import Console

from headrace.cli.general_options import json_option, print_json
from headrace.core.config import bytes_text

_HELP: Final = """\
Make Spark start faster on this machine.

Runs a small job and stores the classes that Spark's JVM loaded for it in your cache directory (70 to 180 MB), as Java
keeps them in memory. Every later `headrace run` uses them. It takes about a minute, and is needed once for each
version of Java and PySpark.

\b
Try it:
  headrace warm-up
  headrace warm-up --remove        delete the stored classes
  headrace warm-up --json | jq -r .archive
"""


@click.command(name="warm-up", help=_HELP)
@click.option(
    "--remove",
    is_flag=True,
    help="Delete the stored classes, for all versions of Java and PySpark.",
)
@json_option
def warm_up(remove: bool, is_json: bool) -> int:
    """Store the classes, or delete them; the help text is `_HELP`."""
    # Imported late: the help texts do not need Spark.
    from headrace.spark.session.class_archive import (
        class_archive,
        class_archives,
        store_class_archive,
    )
    from headrace.spark.session.java_runtime import ensure_java, user_cache_directory

    cache = user_cache_directory(os.environ)
    if remove:
        stored = class_archives(cache)
        for archive in stored:
            archive.unlink(missing_ok=True)
        click.echo(
            f"{len(stored)} archive{'' if len(stored) == 1 else 's'} in {cache} deleted",
            err=is_json,
        )
        if is_json:
            print_json({"deleted": [str(archive) for archive in stored]})
        return 0
    java = ensure_java()
    if java is None:
        raise click.UsageError(
            "spark-submit has already started the JVM: run 'headrace warm-up' by itself"
        )
    archive = class_archive(java, cache)
    console = Console(stderr=True)
    with console.status("Starting") as status:
        store_class_archive(java, archive, lambda step: status.update(f"{step} ..."))
    size_bytes = archive.stat().st_size
    click.echo(
        f"Spark now starts from {archive} ({bytes_text(size_bytes)} of classes)", err=is_json
    )
    if is_json:
        print_json({"archive": str(archive), "size-bytes": size_bytes})
    return 0
