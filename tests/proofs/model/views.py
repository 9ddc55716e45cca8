"""The state that is compared: the same lines from the database and from the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from tests.engine.flows.model import kind_of
from tests.proofs.model.records import Execution, Flow, World
from tests.proofs.model.wait_records import Suspension, Waitpoint

COLUMNS: Final = (
    "flow_id",
    "priority",
    "lifecycle_phase",
    "eligibility_state",
    "blocking_reason",
    "blocking_detail",
    "terminal_outcome",
    "attempt_state",
    "public_state",
    "attempt_index",
    "total_attempt_count",
    "retry_count",
    "replay_count",
    "lease_reclaim_count",
    "lease_epoch",
    "lease_id",
    "worker_id",
    "worker_instance_id",
    "lease_expires_at_ms",
    "attempt_timeout_at_ms",
    "delay_until_ms",
    "deadline_at_ms",
    "created_at_ms",
    "started_at_ms",
    "terminal_at_ms",
    "last_mutation_at_ms",
    "progress_pct",
    "progress_message",
    "failure_reason",
    "failure_category",
    "cancellation_reason",
    "cancelled_by",
    "signal_seq",
)
NAMES: Final = ("execution_id", *COLUMNS, "lane_id", "execution_kind", "payload")

_columns: Final = attrgetter(*NAMES[1:])

EXECUTIONS: Final = f"""
SELECT e.execution_id, {", ".join(f"e.{name}" for name in COLUMNS)}, r.lane_id, r.execution_kind,
       b.payload
  FROM ff.execution e JOIN ff.exec_body b USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id) ORDER BY e.execution_id
"""

GRAPHS: Final = """
SELECT 'flow' AS what, f.flow_id AS one, NULL::uuid AS other,
       ARRAY[f.public_flow_state, f.cancel_reason, f.cancellation_policy, s.public_flow_state]
           AS words,
       ARRAY[f.graph_revision, f.node_count, f.edge_count, f.created_at_ms, f.last_mutation_at_ms,
             f.terminal_at_ms, (SELECT count(*) FROM ff.cancel_backlog_member m
                                 WHERE m.flow_id = f.flow_id)] AS numbers
  FROM ff.flow_core f LEFT JOIN ff.flow_summary s USING (partition_key, flow_id)
 UNION ALL
SELECT 'group', waiter_eid, flow_id, ARRAY[policy_kind, on_satisfied, group_state],
       ARRAY[k, expected_n, success_count, fail_count, skip_count, running_count,
             coalesce(cardinality(cancel_siblings_pending_members), 0),
             coalesce(cardinality(cancel_siblings_pending_losers), 0)]
  FROM ff.edge_group
 UNION ALL
SELECT 'edge', e.upstream_eid, g.waiter_eid,
       ARRAY[e.edge_state, e.resolution, e.resolved_outcome, e.data_passing_ref], NULL
  FROM ff.edge e JOIN ff.edge_group g USING (partition_key, group_id)
 UNION ALL
SELECT 'lane', NULL, NULL, ARRAY[lane_id, lane_state], NULL FROM ff.lane_registry
 UNION ALL
SELECT 'ends', NULL, NULL, NULL,
       ARRAY[count(*), count(*) FILTER (WHERE dispatched_at_ms IS NOT NULL)]
  FROM ff.completion_event
 UNION ALL
SELECT 'signal', execution_id, signal_id, ARRAY[signal_name, idempotency_key],
       ARRAY[signal_seq, accepted_at_ms] FROM ff.signal_inbox
 UNION ALL
SELECT 'entry', execution_id, NULL, ARRAY[name, state, convert_from(value, 'utf8')],
       ARRAY[seq, attempt_index, recorded_at_ms, due_at_ms] FROM ff.journal
 UNION ALL
SELECT 'waitpoint', execution_id, waitpoint_id,
       ARRAY[waitpoint_key, state, close_reason, suspension_id::text,
             (SELECT string_agg((s ->> 'signal_name') || '/' || (s ->> 'source_identity')
                                || '/' || (s ->> 'accepted_at'), ' ' ORDER BY place)
                FROM jsonb_array_elements(signals) WITH ORDINALITY AS came (s, place))],
       ARRAY[attempt_index, created_at_ms, expires_at_ms, activated_at_ms, closed_at_ms,
             signal_count, last_signal_at_ms] FROM ff.waitpoint_pending
 UNION ALL
SELECT 'suspension', execution_id, suspension_id,
       ARRAY[timeout_behavior, reason_code, close_reason,
             (SELECT string_agg((s ->> 'signal_name') || '/' || (s ->> 'source_identity')
                                || '/' || (s ->> 'accepted_at'), ' ' ORDER BY place)
                FROM jsonb_array_elements(all_satisfier_signals) WITH ORDINALITY
                     AS came (s, place))],
       ARRAY[attempt_index, suspended_at_ms, timeout_at_ms, satisfied_at_ms, closed_at_ms]
  FROM ff.suspension_current
"""


def executions(world: World) -> list[tuple[Any, ...]]:
    """Every execution of the model as its row is to be."""
    found = sorted(world.executions.values(), key=lambda each: each.execution_id.uuid)
    return [_line(each) for each in found]


def _line(each: Execution) -> tuple[Any, ...]:
    return each.execution_id.uuid, *_columns(each)


def graphs(world: World) -> list[tuple[Any, ...]]:
    """Every line but those of executions, and how many ends were told."""
    lines: list[tuple[Any, ...]] = []
    for flow in world.flows.values():
        lines.extend(_flow_lines(flow))
    for each in world.executions.values():
        lines.extend(_durable_lines(each))
    lines += [("lane", None, None, [lane, state], None) for lane, state in world.lanes.items()]
    dispatched = sum(each.dispatched for each in world.ends)
    lines.append(("ends", None, None, None, [len(world.ends), dispatched]))
    return lines


def _durable_lines(each: Execution) -> list[tuple[Any, ...]]:
    uuid = each.execution_id.uuid
    lines: list[tuple[Any, ...]] = [
        (
            "signal",
            uuid,
            signal.signal_id,
            [signal.signal_name, signal.idempotency_key],
            [number, signal.accepted_at_ms],
        )
        for number, signal in enumerate(each.signals, 1)
    ]
    for seq, entry in each.entries.items():
        state = "done" if entry.due_at_ms is None else "open"
        words = [entry.name, state, None if entry.value is None else entry.value.decode()]
        numbers = [seq, entry.attempt_index, entry.recorded_at_ms, entry.due_at_ms]
        lines.append(("entry", uuid, None, words, numbers))
    lines += [_waitpoint_line(uuid, one) for one in each.waitpoints.values()]
    if each.suspension is not None:
        lines.append(_suspension_line(uuid, each.suspension))
    return lines


def _waitpoint_line(uuid: UUID, one: Waitpoint) -> tuple[Any, ...]:
    suspension = None if one.suspension_id is None else str(one.suspension_id)
    came = " ".join(each.line for each in one.signals) or None
    words = [one.waitpoint_key, one.state, one.close_reason, suspension, came]
    numbers = [one.attempt_index, one.created_at_ms, one.expires_at_ms, one.activated_at_ms]
    last = one.signals[-1].accepted_at_ms if one.signals else None
    numbers += [one.closed_at_ms, len(one.signals), last]
    return "waitpoint", uuid, one.waitpoint_id, words, numbers


def _suspension_line(uuid: UUID, one: Suspension) -> tuple[Any, ...]:
    words = [one.behavior, one.reason_code, one.close_reason, " ".join(one.satisfiers) or None]
    numbers = [one.attempt_index, one.suspended_at_ms, one.timeout_at_ms]
    numbers += [one.satisfied_at_ms, one.closed_at_ms]
    return "suspension", uuid, one.suspension_id, words, numbers


def _flow_lines(flow: Flow) -> list[tuple[Any, ...]]:
    words = [flow.state, flow.cancel_reason, flow.cancellation_policy, flow.summary_state]
    numbers = [flow.revision, flow.node_count, len(flow.edges), flow.created_at_ms]
    numbers += [flow.last_mutation_at_ms, flow.cancelled_at_ms, len(flow.owed)]
    lines: list[tuple[Any, ...]] = [("flow", flow.flow_id, None, words, numbers)]
    for group in flow.groups.values():
        kind, k, on_satisfied = kind_of(group.policy)
        counts = [k, group.expected_n, *flow.counts(group.downstream)]
        counts += [len(group.siblings), len(group.losers)]
        state = [kind, on_satisfied, group.state]
        lines.append(("group", group.downstream.uuid, flow.flow_id, state, counts))
    for edge in flow.edges:
        stage = "applied" if edge.applied else "pending"
        how = [stage, edge.resolution, edge.resolved_outcome, edge.data_passing_ref]
        lines.append(("edge", edge.upstream.uuid, edge.downstream.uuid, how, None))
    return lines


def difference(stored: Sequence[Any], expected: Sequence[Any]) -> str:
    """What one side has and the other has not, in words; empty where they agree."""
    if stored == expected:
        return ""
    left, right = set(map(_frozen, stored)), set(map(_frozen, expected))
    if left == right and len(stored) == len(expected):
        return ""
    return f"stored {_shown(left - right)}, expected {_shown(right - left)}"


def _frozen(line: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in line)


def _shown(lines: Iterable[Any]) -> str:
    return str([dict(zip(NAMES, each, strict=True)) if len(each) > 5 else each for each in lines])
