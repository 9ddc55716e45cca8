"""A claim of work whose budgets nobody has created is logged: such a budget limits nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

log: Final = logging.getLogger("flowfabric.engine")
_MOST_REMEMBERED: Final = 1000
_logged: Final[set[UUID]] = set()
"""The budgets that this process has logged: each once, not with every claim."""

LOG_UNKNOWN_BUDGETS: Final[LiteralString] = """
-- lifecycle.log_unknown_budgets
SELECT DISTINCT ON (budget.id) budget.id AS budget_id, named.name, held.partition_key,
       held.execution_id
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS held (partition_key, execution_id)
  JOIN ff.exec_body body USING (partition_key, execution_id)
 CROSS JOIN LATERAL jsonb_array_elements_text(body.policy -> 'budget_ids') AS named (name)
 CROSS JOIN LATERAL ff.budget_id(named.name) AS budget (id)
 WHERE budget.id = ANY (%(budget_id)s::uuid[])
 ORDER BY budget.id
"""


class _Unknown(msgspec.Struct, frozen=True):
    budget_id: UUID
    name: str
    partition_key: int
    execution_id: UUID


async def log_unknown_budgets(
    conn: Connection, claimed: Sequence[ExecutionId], budget_ids: Sequence[UUID]
) -> None:
    """Log the budgets, which do not exist, by name, each with one of the claimed executions.

    A process logs a budget once, until it has logged many others.
    """
    new = [each for each in budget_ids if each not in _logged]
    if not new:
        return
    found = await fetch_all(
        conn,
        LOG_UNKNOWN_BUDGETS,
        _Unknown,
        partition_key=[each.partition_key for each in claimed],
        execution_id=[each.uuid for each in claimed],
        budget_id=new,
    )
    if len(_logged) + len(new) > _MOST_REMEMBERED:
        _logged.clear()
    _logged.update(new)
    for each in found:
        log.warning(
            "budget %r does not exist: execution %s and others that are attached to it run "
            "without a limit",
            each.name,
            ExecutionId(each.partition_key, each.execution_id),
        )
