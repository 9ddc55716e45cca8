"""Every operation by its spec name, one line each: the seam that all entry points stand on."""

from __future__ import annotations

from flowfabric.engine.access_operations import AccessOperations
from flowfabric.engine.budget_operations import BudgetOperations
from flowfabric.engine.connected import ConnectedEngine
from flowfabric.engine.console_operations import ConsoleOperations
from flowfabric.engine.events import (
    list_events,
    list_events_of,
    read_history,
    subscribe_completions,
    subscribe_lease_history,
    subscribe_operator_events,
    subscribe_signal_delivery,
)
from flowfabric.engine.execution_reads import ExecutionReads
from flowfabric.engine.flows import (
    ack_cancel_member,
    add_execution_to_flow,
    cancel_flow_header,
    create_flow,
    describe_edge,
    describe_flow,
    get_flow_namespace,
    get_flow_tag,
    list_edges,
    list_flow_members,
    list_flows,
    project_flow_summary,
    read_flow_outcomes,
    read_flow_states,
    set_flow_tag,
    submit_flow,
)
from flowfabric.engine.grants import (
    claim_execution,
    claim_for_worker,
    claim_from_resume_grant,
    claim_resumed_execution,
    issue_claim_grant,
    issue_grant_and_claim,
    issue_reclaim_grant,
    reclaim_execution,
    verify_grant,
)
from flowfabric.engine.joins import (
    apply_dependency_to_child,
    dispatch,
    evaluate_flow_eligibility,
    promote_blocked_to_eligible,
    read_join,
    read_upstream_results,
    read_window,
    set_edge_group_policy,
    spawn_apart,
    spawn_children,
    stage_dependency_edge,
)
from flowfabric.engine.journal import (
    arm_compensation,
    delay_with_entries,
    disarm_compensations,
    list_steps,
    read_compensation,
    read_journal,
    record_entries,
    restart_execution,
    wait_for_entries,
)
from flowfabric.engine.keys import (
    list_waitpoint_hmac_kids,
    rotate_waitpoint_hmac_secret_all,
    seed_waitpoint_hmac_secret,
)
from flowfabric.engine.lanes import (
    count_by_lane,
    list_lanes,
    read_gauges,
    register_lanes,
    set_lane_retention,
    set_lane_state,
)
from flowfabric.engine.lifecycle import (
    cancel,
    claim,
    complete,
    create_execution,
    delay,
    fail,
    find_lost_leases,
    mark_lease_expired_if_due,
    progress,
    read_claimed,
    release,
    release_after_trouble,
    renew,
    wait_children,
)
from flowfabric.engine.operation import (
    noting,
    procedure,
    refusing,
    snapshot,
    statement,
    streaming,
    subscription,
    transaction,
)
from flowfabric.engine.operators import (
    block_execution_for_admission,
    cancel_execution,
    cancel_flow,
    change_priority,
    override_complete,
    override_delay,
    override_fail,
    replay_execution,
    replay_flow,
    resume_execution,
    revoke_lease,
    set_execution_tag,
    unblock_execution,
    wake_execution,
)
from flowfabric.engine.quota_operations import QuotaOperations
from flowfabric.engine.retention import count_trimmable, trim_retention
from flowfabric.engine.schedule_operations import ScheduleOperations
from flowfabric.engine.streams import (
    append_frame,
    follow_stream,
    read_state,
    read_stream,
    read_summary,
    tail_stream,
)
from flowfabric.engine.suspensions import (
    close_waitpoint,
    create_waitpoint,
    deliver_approval_signal,
    deliver_signal,
    expire_suspension,
    list_open_waitpoints,
    list_pending_waitpoints,
    list_suspended,
    observe_signals,
    read_inbox,
    read_question,
    read_waitpoint_token,
    read_waitpoints,
    send_signal,
    suspend,
    suspend_by_triple,
    try_suspend,
)
from flowfabric.engine.suspensions.verify_waitpoint_token import note_failed_token
from flowfabric.engine.workers import (
    find_unserved,
    heartbeat_worker,
    list_namespaces,
    list_unserved_routes,
    list_worker_events,
    list_workers,
    mark_worker_dead,
    register_worker,
)
from flowfabric.errors import InvalidToken


class Engine(
    ConnectedEngine,
    ExecutionReads,
    ScheduleOperations,
    BudgetOperations,
    QuotaOperations,
    AccessOperations,
    ConsoleOperations,
):
    """The engine on one database. Many callers may share it; each call takes one connection.

    A line says how its operation runs: as one `statement`, in one `transaction`, on one `snapshot`,
    or as a `procedure` of several transactions.
    """

    # Executions: submitters and workers.

    create_execution = statement(create_execution.create_execution)
    claim = statement(claim.claim)
    read_claimed = statement(read_claimed.read_claimed)
    renew = statement(renew.renew)
    find_lost_leases = statement(find_lost_leases.find_lost_leases)
    progress = statement(progress.progress)
    complete = statement(complete.complete)
    fail = statement(fail.fail)
    delay = statement(delay.delay)
    wait_children = statement(wait_children.wait_children)
    release = statement(release.release)
    release_after_trouble = statement(release_after_trouble.release_after_trouble)
    cancel = statement(cancel.cancel)
    mark_lease_expired_if_due = statement(mark_lease_expired_if_due.mark_lease_expired_if_due)

    # Operator controls; each change leaves an operator event. A plural stands before its singular,
    # because in this body the name of the singular is then still that of the module.

    cancel_executions = transaction(cancel_execution.cancel_executions)
    cancel_execution = transaction(cancel_execution.cancel_execution)
    replay_executions = transaction(replay_execution.replay_executions)
    replay_execution = transaction(replay_execution.replay_execution)
    override_completes = transaction(override_complete.override_completes)
    override_complete = transaction(override_complete.override_complete)
    override_fails = transaction(override_fail.override_fails)
    override_fail = transaction(override_fail.override_fail)
    override_delays = transaction(override_delay.override_delays)
    override_delay = transaction(override_delay.override_delay)
    revoke_leases = transaction(revoke_lease.revoke_leases)
    revoke_lease = transaction(revoke_lease.revoke_lease)
    change_priorities = transaction(change_priority.change_priorities)
    change_priority = transaction(change_priority.change_priority)
    block_executions_for_admission = transaction(
        block_execution_for_admission.block_executions_for_admission
    )
    block_execution_for_admission = transaction(
        block_execution_for_admission.block_execution_for_admission
    )
    resume_executions = transaction(resume_execution.resume_executions)
    resume_execution = transaction(resume_execution.resume_execution)
    unblock_executions = transaction(unblock_execution.unblock_executions)
    unblock_execution = transaction(unblock_execution.unblock_execution)
    wake_executions = transaction(wake_execution.wake_executions)
    wake_execution = transaction(wake_execution.wake_execution)
    set_execution_tag = transaction(set_execution_tag.set_execution_tag)
    cancel_flow = procedure(cancel_flow.cancel_flow)
    replay_flow = procedure(replay_flow.replay_flow)

    # Grants: a scheduler reserves an execution for a worker, which then claims it by id.

    claim_for_worker = transaction(claim_for_worker.claim_for_worker)
    issue_claim_grant = refusing(issue_claim_grant.issue_claim_grant)
    issue_reclaim_grant = transaction(issue_reclaim_grant.issue_reclaim_grant)
    issue_grant_and_claim = transaction(issue_grant_and_claim.issue_grant_and_claim)
    verify_grant = statement(verify_grant.verify_grant)
    claim_execution = transaction(claim_execution.claim_execution)
    claim_resumed_execution = transaction(claim_resumed_execution.claim_resumed_execution)
    claim_from_resume_grant = transaction(claim_from_resume_grant.claim_from_resume_grant)
    reclaim_execution = transaction(reclaim_execution.reclaim_execution)

    # Flows: whole graphs.

    create_flow = statement(create_flow.create_flow)
    add_execution_to_flow = transaction(add_execution_to_flow.add_execution_to_flow)
    submit_flows = transaction(submit_flow.submit_flows)
    submit_flow = transaction(submit_flow.submit_flow)
    cancel_flow_header = transaction(cancel_flow_header.cancel_flow_header)
    ack_cancel_member = transaction(ack_cancel_member.ack_cancel_member)
    describe_flow = snapshot(describe_flow.describe_flow)
    list_flows = statement(list_flows.list_flows)
    list_flow_members = statement(list_flow_members.list_flow_members)
    read_flow_states = statement(read_flow_states.read_flow_states)
    read_flow_outcomes = statement(read_flow_outcomes.read_flow_outcomes)
    describe_edge = statement(describe_edge.describe_edge)
    list_edges = statement(list_edges.list_edges)
    project_flow_summary = transaction(project_flow_summary.project_flow_summary)
    set_flow_tag = transaction(set_flow_tag.set_flow_tag)
    get_flow_tag = statement(get_flow_tag.get_flow_tag)
    get_flow_namespace = statement(get_flow_namespace.get_flow_namespace)

    # Joins: what members and parents wait for.

    stage_dependency_edge = transaction(stage_dependency_edge.stage_dependency_edge)
    apply_dependency_to_child = transaction(apply_dependency_to_child.apply_dependency_to_child)
    set_edge_group_policy = transaction(set_edge_group_policy.set_edge_group_policy)
    evaluate_flow_eligibility = statement(evaluate_flow_eligibility.evaluate_flow_eligibility)
    promote_blocked_to_eligible = transaction(
        promote_blocked_to_eligible.promote_blocked_to_eligible
    )
    dispatch = procedure(dispatch.dispatch)
    read_upstream_results = statement(read_upstream_results.read_upstream_results)
    spawn_children = transaction(spawn_children.spawn_children)
    spawn_apart = transaction(spawn_apart.spawn_apart)
    read_join = statement(read_join.read_join)
    read_window = transaction(read_window.read_window)

    # Suspensions, and signals by name.

    suspend_by_triple = transaction(suspend_by_triple.suspend_by_triple)
    try_suspend = transaction(try_suspend.try_suspend)
    suspend = transaction(suspend.suspend)
    expire_suspension = transaction(expire_suspension.expire_suspension)
    list_suspended = statement(list_suspended.list_suspended)
    observe_signals = statement(observe_signals.observe_signals)
    send_signals = transaction(send_signal.send_signals)
    send_signal = transaction(send_signal.send_signal)
    read_inbox = statement(read_inbox.read_inbox)

    # Waitpoints, and the signals that outsiders deliver to them.

    create_waitpoint = transaction(create_waitpoint.create_waitpoint)
    close_waitpoints = transaction(close_waitpoint.close_waitpoints)
    close_waitpoint = transaction(close_waitpoint.close_waitpoint)
    deliver_signal = noting(deliver_signal.deliver_signal, InvalidToken, note_failed_token)
    deliver_approval_signal = transaction(deliver_approval_signal.deliver_approval_signal)
    read_question = noting(read_question.read_question, InvalidToken, note_failed_token)
    read_waitpoints = statement(read_waitpoints.read_waitpoints)
    read_waitpoint_token = statement(read_waitpoint_token.read_waitpoint_token)
    list_pending_waitpoints = statement(list_pending_waitpoints.list_pending_waitpoints)
    list_open_waitpoints = statement(list_open_waitpoints.list_open_waitpoints)

    # The journal of a handler: its durable calls, and the compensations that it has armed.

    wait_for_entries = statement(wait_for_entries.wait_for_entries)
    record_entries = statement(record_entries.record_entries)
    delay_with_entries = statement(delay_with_entries.delay_with_entries)
    read_journal = statement(read_journal.read_journal)
    restart_execution = transaction(restart_execution.restart_execution)
    arm_compensation = transaction(arm_compensation.arm_compensation)
    disarm_compensations = transaction(disarm_compensations.disarm_compensations)
    read_compensation = snapshot(read_compensation.read_compensation)
    list_steps = statement(list_steps.list_steps)

    # Streams: frames that handlers append, and the state that they keep for readers.

    append_frames = statement(append_frame.append_frames)
    append_frame = statement(append_frame.append_frame)
    read_stream = streaming(read_stream.read_stream)
    tail_stream = streaming(tail_stream.tail_stream)
    follow_stream = streaming(follow_stream.follow_stream)
    read_summary = statement(read_summary.read_summary)
    read_state = statement(read_state.read_state)

    # Events: as they happen, the newest of all, or the history of one execution.

    subscribe_completions = subscription(subscribe_completions.subscribe_completions)
    subscribe_lease_history = subscription(subscribe_lease_history.subscribe_lease_history)
    subscribe_operator_events = subscription(subscribe_operator_events.subscribe_operator_events)
    subscribe_signal_delivery = subscription(subscribe_signal_delivery.subscribe_signal_delivery)
    list_events = snapshot(list_events.list_events)
    list_events_of = snapshot(list_events_of.list_events_of)
    read_history = statement(read_history.read_history)

    # Lanes, workers, retention, keys.

    register_lanes = statement(register_lanes.register_lanes)
    list_lanes = statement(list_lanes.list_lanes)
    count_by_lane = statement(count_by_lane.count_by_lane)
    read_gauges = snapshot(read_gauges.read_gauges)
    set_lane_state = transaction(set_lane_state.set_lane_state)
    set_lane_retention = transaction(set_lane_retention.set_lane_retention)
    register_worker = statement(register_worker.register_worker)
    heartbeat_worker = statement(heartbeat_worker.heartbeat_worker)
    mark_worker_dead = transaction(mark_worker_dead.mark_worker_dead)
    find_unserved = statement(find_unserved.find_unserved)
    list_unserved_routes = statement(list_unserved_routes.list_unserved_routes)
    list_workers = statement(list_workers.list_workers)
    list_namespaces = statement(list_namespaces.list_namespaces)
    list_worker_events = statement(list_worker_events.list_worker_events)
    trim_retention = transaction(trim_retention.trim_retention)
    count_trimmable = statement(count_trimmable.count_trimmable)
    seed_waitpoint_hmac_secret = transaction(seed_waitpoint_hmac_secret.seed_waitpoint_hmac_secret)
    rotate_waitpoint_hmac_secret_all = transaction(
        rotate_waitpoint_hmac_secret_all.rotate_waitpoint_hmac_secret_all
    )
    list_waitpoint_hmac_kids = statement(list_waitpoint_hmac_kids.list_waitpoint_hmac_kids)
