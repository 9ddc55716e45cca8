"""`ff migrate`: bring the schema to this version."""

from __future__ import annotations

from flowfabric.cli.connection import resolve, run
from flowfabric.cli.output import AsJson, DatabaseUrl, console, print_json
from flowfabric.db.migrate import migrate as apply
from flowfabric.db.migrate import needed_version


def migrate(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Apply the migrations that the database does not have yet."""
    done = run(apply(resolve(database_url)))
    if as_json:
        names = [f"{migration.version:04d}_{migration.name}" for migration in done]
        print_json({"applied": names, "version": needed_version()})
        return
    for migration in done:
        console.print(f"applied [b]{migration.version:04d}_{migration.name}[/b]")
    console.print(f"The schema is at version {needed_version()}.")
