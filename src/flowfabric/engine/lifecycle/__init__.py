"""The moves of one execution; only this package writes `ff.exec_core` and `ff.attempt`.

Submitters and workers:

    create_execution           absent → runnable
    create_unique_execution    the same, unless another one has its key; or that one ends
    debounce_execution         absent → delayed, or the delay of one that waits is moved
    creation_columns           the parameters of `create_execution`
    alike_batch                executions of it that differ in id and payload only
    claim                      runnable → active, the best of some lanes
    read_claimed               what a claim got whose answer was lost
    admit_by_key               the limit of one that is claimed by its id counts the start
    claim_by_id                runnable → active, one by its id
    lock_for_claim             locks one for that, and says why a claim is refused
    renew                      a lease is extended
    find_lost_leases           which leases were ended by a decision elsewhere
    progress                   an attempt reports its progress
    complete                   active → success
    fail                       active → retry or failed
    cancel                     active → cancelled, by the holder
    delay                      active → delayed
    release                    active → runnable
    release_after_trouble      active → delayed, or failed when it happened too often
    wait_children              active → waiting for children
    restart_attempt            active → runnable, as the next attempt with other arguments
    lease                      a lease and its opaque handle

Sweeps:

    promote_due                delayed → claimable
    expire_leases              expired leases are voided
    mark_lease_expired_if_due  the same for one execution
    expire_attempts            attempts that timed out are retried or expire
    expire_executions          executions past their deadline expire
    end_parked_members         requeued members of cancelled flows end

Logging:

    attempt_log                log records about attempts that did not succeed
    log_unknown_budgets        a claim of work whose budgets do not exist

Called by other packages:

    move_to_suspended          active → suspended
    resume                     suspended → runnable, and the suspension is closed
    resume_waiting             suspended → runnable, where a join of children is decided
    escalate                   suspended → suspended, until an operator decides
    reopen_waitpoints          waitpoints that an end closed, when the execution is replayed
    number_signals             the signals of an inbox are numbered
    lock_leases                leases are locked against their end
    arm_compensations          unless the executions succeed, their compensations run
    expire_leases_of_dead      leases of workers whose session has ended are voided
    terminalize                named executions end
    lock_executions            named executions are locked, and read under the lock
    lock_unique_keys           the unique keys of executions are locked
    visible_executions         which executions are in some namespaces
    lock_members               the members of a flow are locked
    end_blocked_members        the members of a cancelled flow that wait for others end
    park_members               the members of a cancelled flow are parked
    unmark_members             the members of a flow that is open again are not parked any more
    join_flow                  an execution becomes a member
    ensure_parent_flow         a parent is in the flow of its children
    hold_dependents            members wait for dependencies
    promote_dependents         members are claimable
    pass_results               a result becomes an input
    pass_arguments             a result becomes one argument of an input
    note_capability_mismatch   the time of a mismatch is stored
    operator_event             an operator event is written
    signal_holders             workers of this process hear that leases of theirs have ended

Called by operator controls:

    block                      runnable → blocked
    unblock                    blocked → runnable
    unblock_budgets            sweep: blocked by a spent budget that has room again → runnable
    unblock_routes             sweep: blocked until a worker could run them → runnable
    reprioritise               the priority changes
    restart                    terminal → runnable
    revoke                     active → runnable, the holder is refused
    postpone                   active → delayed, the holder is refused
    promote_delayed            delayed → claimable, named executions before their time
    tag                        one tag gets a value

SQL that statements share:

    sql                        the package of these fragments
"""
