"""Limits per key: how many executions run at once, and how fast they start.

create_quota_policy       a limit exists
update_quota_policy       a limit has other numbers, for all that starts from now on
delete_quota_policy       a limit is gone; what it held back can be claimed
read_quota_policy_limits  what a limit allows
get_quota_policy          a limit, by its name or id
list_quota_policies       the limits of a namespace
list_quota_keys           the keys of a limit: what runs, what has started, what is held back
list_busiest_keys         the keys of a limit that hold back most, then those that run most
check_admission           one execution is admitted, or refused, outside of the claim
release_admission         an admission is given back
unblock_keys              executions that were held back are claimable, as many as have room
unblock_keys_of           the same for the keys of executions that have given up their leases
unblock_due_keys          sweep: the same for keys whose time has come, or that lost a lease
unblock_held_keys         sweep: the same for some keys that hold executions back
trim_quotas               sweep: starts, admissions and keys that count no more are deleted
quota_policy              a limit as it is stored
"""
