"""Suspensions, waitpoints and signals: what an execution waits for, and what lets it go on.

Suspensions:

    suspend                    active → suspended, until signals, children or time resume it
    try_suspend                the same for one execution
    suspend_by_triple          the same for a caller that has no handle
    suspension                 what a suspension is asked for, and the answers
    plan_suspension            the checks of one request, in their order
    store_suspensions          suspensions are stored, with waitpoints and answers
    expire_suspensions         sweep: the timeouts of suspensions are applied
    expire_suspension          the same for one execution
    apply_timeouts             what a timeout does
    list_suspended             the suspended executions of a partition
    observe_signals            the signals that resumed an attempt
    list_reviews               executions that wait for an operator, by kind

Waitpoints:

    create_waitpoint           a waitpoint, ahead of the suspension that will use it
    close_waitpoint            a waitpoint takes no more signals
    read_waitpoints            waitpoints of an execution with their signals
    read_waitpoint_token       the token of an open waitpoint
    read_question              what the holder of a token is asked
    list_pending_waitpoints    the open waitpoints of an execution
    list_open_waitpoints       the open waitpoints of all executions
    list_closed_waitpoints     the waitpoints that were answered or have expired
    count_waitpoints_by_kid    open waitpoints by the key of their token
    expire_pending_waitpoints  sweep: waitpoints that were never used are closed
    waitpoint                  a waitpoint, its row, and its signals as JSON

Signals:

    send_signal                a signal by name, from a trusted caller, into the inbox
    list_signals               the signals that an execution was sent
    read_inbox                 the signals in the inbox that are not consumed
    deliver_signal             a signal from a caller that has the token
    deliver_approval_signal    a signal from an operator
    verify_waitpoint_token     the checks of the token
    delivery                   the checks of the arguments
    evaluate_delivery          what a signal does, or why it is refused
    signal_events              the event that each accepted signal leaves
    signal_answers             what the sender of a signal is told
"""
