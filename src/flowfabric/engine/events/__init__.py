"""The outboxes: events of completions, leases, signals and operators, in order, for subscribers.

Subscribing:

    subscribe_completions      every completion
    subscribe_lease_history    every lease event
    subscribe_operator_events  every operator event
    subscribe_signal_delivery  every accepted signal
    subscribe                  subscriptions, and the hub that has all outboxes of a process
    broadcast                  one outbox for all its subscribers
    reader                     the one reader of an outbox
    wait_for_writers           the wait until ids are final
    wait_for_flush             the wait until a crash cannot lose what was read
    cursor                     the position of a subscriber
    filters                    which events a subscriber wants

Tables:

    outbox                     what the outboxes have in common
    completion_events          the outbox of completions
    lease_events               the outbox of leases
    operator_events            the outbox of operators
    signal_events              the outbox of signals
    list_events                the newest events of one outbox
    list_events_of             the newest events of several outboxes
    list_ended_leases          how the newest leases of a worker ended
    read_history               the events of one execution, page by page
    history_order              the order of the events of one execution
    prune_actions              sweep: old operator events without an execution are deleted
"""
