"""SQL that several statements share: fragments of one `WITH` list, as constants and builders.

Each fragment begins with the comma that separates it from the CTE before. A builder takes the name
of a CTE to read (`source`) and SQL expressions over the columns of that CTE.

    fence         the leases that callers pass, and which of them are held
    lease         rows are leased
    by_key        the execution or the lease of a row is looked up
    queue         rows are queued for a claim, or taken off the queue
    requeue       leased rows are runnable again
    end           rows end
    close         what is beside rows that have ended is closed
    expire_lease  rows with an expired lease are requeued or end
    attempt       the row of an attempt
    entries       entries of journals are recorded
    events        lease and completion events
    submitted     what was submitted is kept when a payload is replaced
    wake          wake-ups of those that wait
"""
