"""The operations of `Engine` that read executions; none has a side effect."""

from __future__ import annotations

from flowfabric.engine.executions import (
    count_by_state,
    count_claimable,
    count_expiring_leases,
    count_matching,
    describe_execution,
    explain_execution,
    find_execution,
    get_execution_namespace,
    get_execution_result,
    get_execution_tag,
    group_failures,
    list_attempts,
    list_executions,
    list_expired_leases,
    locate_execution_by_key,
    locate_executions,
    look_at_waits,
    read_current_attempt_index,
    read_exec_core_fields,
    read_execution_context,
    read_execution_info,
    read_execution_state,
    read_lease_expiries,
    read_namespaces,
    read_outcomes,
    read_policy,
    read_total_attempt_count,
    resolve_execution_flow_id,
    search_executions,
)
from flowfabric.engine.operation import snapshot, statement


class ExecutionReads:
    """A part of `Engine`, which says how each operation runs."""

    describe_execution = statement(describe_execution.describe_execution)
    read_execution_state = statement(read_execution_state.read_execution_state)
    read_execution_info = statement(read_execution_info.read_execution_info)
    read_execution_context = statement(read_execution_context.read_execution_context)
    read_policy = statement(read_policy.read_policy)
    get_execution_result = statement(get_execution_result.get_execution_result)
    read_namespaces = statement(read_namespaces.read_namespaces)
    read_lease_expiries = statement(read_lease_expiries.read_lease_expiries)
    read_outcomes = statement(read_outcomes.read_outcomes)
    look_at_waits = statement(look_at_waits.look_at_waits)
    list_attempts = statement(list_attempts.list_attempts)
    list_executions = statement(list_executions.list_executions)
    search_executions = snapshot(search_executions.search_executions)
    locate_executions = statement(locate_executions.locate_executions)
    locate_execution_by_key = statement(locate_execution_by_key.locate_execution_by_key)
    explain_execution = snapshot(explain_execution.explain_execution)
    read_current_attempt_index = statement(read_current_attempt_index.read_current_attempt_index)
    read_total_attempt_count = statement(read_total_attempt_count.read_total_attempt_count)
    get_execution_tag = statement(get_execution_tag.get_execution_tag)
    get_execution_namespace = statement(get_execution_namespace.get_execution_namespace)
    resolve_execution_flow_id = statement(resolve_execution_flow_id.resolve_execution_flow_id)
    read_exec_core_fields = statement(read_exec_core_fields.read_exec_core_fields)
    count_by_state = statement(count_by_state.count_by_state)
    count_claimable = statement(count_claimable.count_claimable)
    count_expiring_leases = statement(count_expiring_leases.count_expiring_leases)
    list_expired_leases = statement(list_expired_leases.list_expired_leases)
    count_matching = snapshot(count_matching.count_matching)
    find_execution = statement(find_execution.find_execution)
    group_failures = statement(group_failures.group_failures)
