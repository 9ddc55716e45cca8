"""The operations of `Engine` on limits, and on executions of which one at a time may wait."""

from __future__ import annotations

from flowfabric.engine.lifecycle import create_unique_execution, debounce_execution
from flowfabric.engine.operation import snapshot, statement, transaction
from flowfabric.engine.quotas import (
    check_admission,
    create_quota_policy,
    delete_quota_policy,
    get_quota_policy,
    list_busiest_keys,
    list_quota_keys,
    list_quota_policies,
    read_quota_policy_limits,
    release_admission,
    unblock_keys,
    unblock_keys_of,
    update_quota_policy,
)


class QuotaOperations:
    """A part of `Engine`, which says how each operation runs."""

    create_quota_policy = transaction(create_quota_policy.create_quota_policy)
    update_quota_policy = transaction(update_quota_policy.update_quota_policy)
    delete_quota_policy = transaction(delete_quota_policy.delete_quota_policy)
    get_quota_policy = statement(get_quota_policy.get_quota_policy)
    read_quota_policy_limits = statement(read_quota_policy_limits.read_quota_policy_limits)
    list_quota_policies = statement(list_quota_policies.list_quota_policies)
    list_quota_keys = snapshot(list_quota_keys.list_quota_keys)
    list_busiest_keys = snapshot(list_busiest_keys.list_busiest_keys)
    check_admission = transaction(check_admission.check_admission)
    release_admission = statement(release_admission.release_admission)
    unblock_keys = statement(unblock_keys.unblock_keys)
    unblock_keys_of = statement(unblock_keys_of.unblock_keys_of)
    create_unique_executions = transaction(create_unique_execution.create_unique_executions)
    create_unique_execution = transaction(create_unique_execution.create_unique_execution)
    debounce_execution = transaction(debounce_execution.debounce_execution)
