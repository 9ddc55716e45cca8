"""Rows are looked up by their key, whatever the planner believes of the sizes of the tables.

The first comparison is no plain equality: with one the planner may read a whole table in the order
of its key and compare each row with every row of the batch. It does so when the plan is made while
the table is empty, or when the last ANALYZE found it so, which is usual for the leases after a
quiet minute. An ORDER BY of the columns of the key would have the same effect: callers order by the
columns of the batch.
"""

from __future__ import annotations

from typing import LiteralString


def lease_row(partition_key: LiteralString, execution_id: LiteralString) -> LiteralString:
    """The condition that `ff.lease l` has this key."""
    return f"""l.partition_key = ANY (ARRAY[{partition_key}])
       AND l.execution_id = {execution_id}"""


def execution_row(partition_key: LiteralString, execution_id: LiteralString) -> LiteralString:
    """The condition that `ff.exec_core e` has this key."""
    return f"""e.partition_key = ANY (ARRAY[{partition_key}])
       AND e.execution_id = {execution_id}"""


def open_suspension(partition_key: LiteralString, execution_id: LiteralString) -> LiteralString:
    """The condition that `ff.suspension_current s` has this key, and is open.

    It is written so that no index of the open suspensions fits, which would be read whole.
    """
    return f"""s.partition_key = ANY (ARRAY[{partition_key}])
       AND s.execution_id = {execution_id} AND coalesce(s.closed_at_ms, 0) = 0"""


def open_waitpoints(partition_key: LiteralString, execution_id: LiteralString) -> LiteralString:
    """The condition that `ff.waitpoint_pending w` belongs to this execution, and is open.

    It does not name the state, so that no index of the open waitpoints fits.
    """
    return f"""w.execution_id = ANY (ARRAY[{execution_id}])
       AND w.partition_key = ANY (ARRAY[{partition_key}]) AND w.closed_at_ms IS NULL"""
