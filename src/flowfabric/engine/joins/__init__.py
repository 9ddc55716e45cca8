"""Joins: a member waits for its upstreams, a handler for its children, until a policy decides.

Building:

    stage_dependency_edge        an edge is part of the graph
    apply_dependency_to_child    an edge gates its downstream
    set_edge_group_policy        the policy of the join of a member

Deciding:

    dispatch                     completions are dispatched until none is left
    dispatch_completions         sweep: a batch of completions is dispatched
    resolve_edges                completions resolve edges, joins are decided
    evaluate_join                a join is decided by its counters
    apply_decisions              decided joins take effect
    pass_to_waiters              results become inputs, whole or as one argument
    evaluate_flow_eligibility    whether the joins of an execution allow it to run
    promote_blocked_to_eligible  an execution without open dependencies is claimable
    redispatch_lost_completions  sweep: completions that left an edge unresolved

Cancelling upstreams that no join needs:

    queue_siblings               upstreams of a decided join are listed
    queue_children               children of an unsuccessful parent are listed
    find_unneeded                members that served only cancelled upstreams are listed
    cancel_siblings              sweep: listed upstreams are cancelled
    reconcile_siblings           sweep: listings without members are deleted

Children:

    spawn_children               children with one join
    spawn_apart                  children with one join each
    children                     what both share
    adopt_children               children that existed before count for a join
    read_join                    one join with its children
    read_window                  the joins of one call, with a child each
    read_upstream_results        the results of the upstreams of a member
    reopen_join                  the join of a replayed parent counts again

Replays:

    lock_joins                   members are locked with their joins and those below them
    member_joins                 which members can run again, by their upstreams as they are
    skipped_below                the members that were skipped below others
    reset_join                   members wait for their upstreams again
"""
