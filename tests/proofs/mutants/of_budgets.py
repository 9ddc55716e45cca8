"""Faults in the counting of budgets."""

from __future__ import annotations

from typing import Final

from tests.proofs.mutants.mutant import Edit, Mutant
from tests.proofs.mutants.place import Place

_REPORT: Final = Place(folder="db/functions/report_usage.sql")

OF_BUDGETS: Final = (
    Mutant(
        "the key of a report is ignored",
        ("G13",),
        (
            Edit(
                _REPORT,
                find="IF EXISTS (SELECT FROM unnest(given_dedup_key) AS k WHERE k <> '') THEN",
                put="given_dedup_key := array_fill(''::text, ARRAY[cardinality(given_budget_id)]);"
                " IF false THEN",
            ),
        ),
        proofs=("budgets",),
        tests=("engine/budgets/test_usage.py",),
    ),
    Mutant(
        "a release takes what was spent in an earlier period",
        ("G13",),
        (
            Edit(
                Place(folder="db/functions/release_spend.sql"),
                find="WHERE d.period_no = coalesce(p.period_no, 0)",
                put="WHERE true",
            ),
        ),
        proofs=("budgets",),
        tests=("engine/budgets/test_usage.py",),
    ),
)
