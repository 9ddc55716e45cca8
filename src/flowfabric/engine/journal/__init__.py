"""The journal of a handler: its durable calls, so that a handler that runs again repeats none.

Holders:

    record_entries        entries of many executions are recorded
    delay_with_entries    handlers that sleep give up their leases, with their entries recorded
    begin_entry           one entry is recorded, or found as it was first written
    read_journal          the journals of executions, with the signals that nothing has consumed
    wait_for_entries      waits for entries that are being written
    restart_execution     the handler begins anew, with an empty journal

Compensations:

    arm_compensation      unless the execution succeeds, a call is made
    disarm_compensations  what was armed so far is not made any more
    start_compensations   sweep: executions that ended without success are compensated
    read_compensation     the execution that compensates for another one
    compensation          the stored calls, and the payload of the execution that makes them

Operators:

    list_steps            the durable calls of one execution, page by page
    rewind_journal        what keeps ended executions from going on is dropped
    skip_sleeps           sleeps are over before their time

Shared:

    entry                 an entry, as it is written and as it is stored
    kept_entries          what outlives a restart: the generation, and armed compensations
"""
