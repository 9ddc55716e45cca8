"""Situations kept in the database itself: put back in one call, and read as comparable text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from flowfabric.db.rows import Connection

State: TypeAlias = tuple[str, ...]

TABLES = (
    "exec_core",
    "ready",
    "lease",
    "exec_body",
    "exec_tag",
    "exec_idempotency",
    "attempt",
    "completion_event",
    "lease_event",
    "operator_event",
    "claim_grant",
    "flow_core",
    "flow_summary",
    "edge_group",
    "edge",
    "pending_cancel_groups",
    "cancel_backlog",
    "cancel_backlog_member",
    "journal",
    "suspension_current",
    "waitpoint_pending",
    "suspend_dedup",
    "signal_dedup",
    "signal_inbox",
    "signal_event",
    "schedule",
    "schedule_fire",
    "budget_policy",
    "budget_usage",
    "budget_usage_dedup",
    "budget_usage_by_exec",
    "quota_policy",
    "quota_key",
    "quota_window",
    "quota_admitted",
    "quota_wakeup",
)
CLOCK = "ff_testing.clock"

COLUMNS = """
SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute
 WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""

# Which transaction queued a row is no part of the outcome: each order has transactions of its own.
EVERYTHING = " UNION ALL ".join(
    f"SELECT '{table}' AS place, (to_jsonb(t) - 'queued_by')::text AS line FROM ff.{table} t"
    for table in TABLES
)

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class Known:
    """The uuids that a situation has names for; any other one is new."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def text(self, value: str) -> str:
        return _UUID.sub(lambda found: self._names.get(found[0], "new"), value)


async def emptied(db: Connection) -> None:
    """No rows, and the clock where it was when it was stopped."""
    await db.execute(";".join(f"DELETE FROM ff.{table}" for table in TABLES))


async def save(db: Connection, name: str) -> None:
    """Keep everything that stands now as the situation of that name."""
    await db.execute("CREATE SCHEMA IF NOT EXISTS ff_saved")
    put_back = [f"DELETE FROM ff.{table};" for table in TABLES]
    for table in (*(f"ff.{table}" for table in TABLES), CLOCK):
        if not await db.fetchval(f"SELECT EXISTS (SELECT FROM {table})"):
            continue
        columns = await db.fetchval(COLUMNS, table)
        kept = f'ff_saved."{name} {table}"'
        await db.execute(f"CREATE TABLE {kept} AS SELECT {columns} FROM {table}")
        if table == CLOCK:
            put_back.append(f"UPDATE {CLOCK} SET now_ms = (SELECT now_ms FROM {kept});")
        else:
            put_back.append(
                f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE"
                f" SELECT {columns} FROM {kept};"
            )
    await db.execute(
        f'CREATE FUNCTION ff_saved."{name}"() RETURNS void LANGUAGE plpgsql AS $put_back$'
        f" BEGIN {' '.join(put_back)} END $put_back$"
    )


async def restore(db: Connection, name: str) -> None:
    """Everything stands again as it was when it was kept."""
    await db.fetch(f'SELECT ff_saved."{name}"()')


async def tidy(db: Connection) -> None:
    """Remove what was deleted: tables that are put back again and again grow."""
    for table in (*(f"ff.{table}" for table in TABLES), CLOCK):
        await db.execute(f"VACUUM {table}")


async def state(db: Connection, known: Known) -> State:
    """Every row, without what is drawn anew each time: fresh ids and the numbers of events."""
    return comparable(
        [(row["place"], msgspec.json.decode(row["line"])) for row in await db.fetch(EVERYTHING)],
        known,
    )


def comparable(rows: Sequence[tuple[str, dict[str, Any]]], known: Known) -> State:
    """The rows as sorted text. An event is named by its execution and its place among those."""
    places: dict[tuple[str, int], str] = {}
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    events = [(place, row) for place, row in rows if "event_id" in row]
    for place, row in sorted(events, key=lambda one: one[1]["event_id"]):
        of = str(row["execution_id"] or row["flow_id"])
        counted[place][of] += 1
        places[place, row["event_id"]] = f"{of}#{counted[place][of]}"
    lines: list[str] = []
    for place, row in rows:
        if "event_id" in row:
            row["event_id"] = places[place, row["event_id"]]
        for column in ("min_event_id", "resolved_event_id"):
            if row.get(column):
                row[column] = places.get(("completion_event", row[column]), "gone")
        for drawn in ("grant_id", "start_no", "wakeup_id"):
            row.pop(drawn, None)
        lines.append(known.text(f"{place} {msgspec.json.encode(row).decode()}"))
    return tuple(sorted(lines))


def without_marks_of_a_cancel(found: State) -> State:
    """The same, without what a cancel leaves differently where a member was in use.

    It names such a member, which may be about to end, and does not mark it. The mark on a member
    that has ended says nothing: no member of a cancelled flow is replayed. A join with nothing left
    to cancel may keep the reason of a listing whose members the cancel had ended; whom the listing
    did cancel has that reason too.
    """
    return tuple(map(_without_mark, found))


def _without_mark(line: str) -> str:
    if line.startswith("operator_event "):
        return re.sub(r'"member_count":\d+', '"member_count":0', line)
    if line.startswith("exec_core ") and '"lifecycle_phase":"terminal"' in line:
        return line.replace('"flow_cancelled":true', '"flow_cancelled":false')
    if line.startswith("edge_group ") and '"cancel_siblings_pending_flag":false' in line:
        return re.sub(r'"cancel_siblings_reason":"\w+"', '"cancel_siblings_reason":null', line)
    return line


def outcomes_overwritten(found: State) -> int:
    """Executions that were told more ends than they had, or another end than stands.

    New ones have no names: they are told apart by their partitions.
    """
    executions = _rows(found, "exec_core")
    told: defaultdict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)
    for event in _rows(found, "completion_event"):
        if event["outcome"] != "resumable":
            told[_place(event)].append((event["event_id"], event["outcome"]))
    wrong = 0
    for each in executions:
        ends = [outcome for _, outcome in sorted(told[_place(each)])]
        ended = each["lifecycle_phase"] == "terminal"
        stands = not ended or ends[-1:] == [each["terminal_outcome"]]
        wrong += len(ends) != each["replay_count"] + ended or not stands
    return wrong


def _place(row: dict[str, Any]) -> tuple[int, str]:
    return row["partition_key"], row["execution_id"]


def resumed_twice(found: State) -> int:
    """Executions that were resumed more often than they were suspended."""
    resumes: Counter[str] = Counter()
    for event in _rows(found, "completion_event"):
        resumes[event["execution_id"]] += event["outcome"] == "resumable"
    suspends = {each["execution_id"]: 0 for each in _rows(found, "exec_core")}
    for event in _rows(found, "lease_event"):
        suspends[event["execution_id"]] += event["reason"] == "suspended"
    return sum(count > suspends.get(each, 0) for each, count in resumes.items())


def _rows(found: State, place: str) -> list[dict[str, Any]]:
    return [
        msgspec.json.decode(line.split(" ", 1)[1]) for line in found if line.startswith(f"{place} ")
    ]
