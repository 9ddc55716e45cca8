"""`ff doctor`: checks of the database, with advice."""

from __future__ import annotations

import typer

from flowfabric.cli.connection import resolve, run
from flowfabric.cli.output import AsJson, DatabaseUrl, console, escape, listing, print_json
from flowfabric.db.doctor import Finding, Verdict, examine

_SIGNS = {Verdict.OK: "[green]ok[/]", Verdict.WARN: "[yellow]warn[/]", Verdict.FAIL: "[red]FAIL[/]"}


def doctor(database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Check the database and say what to mend; exit code 1 if it cannot be used safely."""
    findings = run(_examine(resolve(database_url)))
    if as_json:
        print_json(findings)
    else:
        console.print(
            listing(
                findings,
                "check",
                "verdict",
                "found",
                "advice",
                verdict=lambda finding: _SIGNS[finding.verdict],
                found=lambda finding: escape(finding.found),
                advice=lambda finding: escape(finding.advice),
            )
        )
    if any(finding.verdict is Verdict.FAIL for finding in findings):
        raise typer.Exit(1)


async def _examine(dsn: str) -> list[Finding]:
    return await examine(dsn)
