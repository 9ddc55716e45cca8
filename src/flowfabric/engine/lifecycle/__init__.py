"""The moves of one execution; only this package writes `ff.exec_core` and `ff.attempt`.

Submitters and workers:

    create_execution           absent → runnable
    claim                      runnable → active, the best of some lanes
    claim_by_id                runnable → active, one by its id
    lock_for_claim             locks one for that, and says why a claim is refused
    renew                      a lease is extended
    progress                   an attempt reports its progress
    complete                   active → success
    fail                       active → retry or failed
    cancel                     active → cancelled, by the holder
    delay                      active → delayed
    release                    active → runnable
    wait_children              active → waiting for children
    lease                      a lease and its opaque handle

Sweeps:

    promote_due                delayed → claimable
    expire_leases              expired leases are voided
    mark_lease_expired_if_due  the same for one execution
    expire_attempts            attempts that timed out are retried or expire
    expire_executions          executions past their deadline expire
    end_parked_members         requeued members of cancelled flows end

Called by other packages:

    terminalize                named executions end
    lock_executions            named executions are locked
    lock_members               the members of a flow are locked
    park_members               the members of a cancelled flow are parked
    join_flow                  an execution becomes a member
    ensure_parent_flow         a parent is in the flow of its children
    hold_dependents            members wait for dependencies
    promote_dependents         members are claimable
    pass_results               a result becomes an input
    note_capability_mismatch   the time of a mismatch is stored
    operator_event             an operator event is written

Operator controls:

    cancel_execution           an execution ends as cancelled
    replay_execution           an ended execution runs again
    revoke_lease               a lease is voided
    change_priority            the place in the queue changes
    block_execution            an execution is blocked or unblocked
    set_execution_tag          a tag gets a value
    standing_of                locks and reads the execution of a control

SQL that statements share:

    sql                        the package of these fragments
"""
