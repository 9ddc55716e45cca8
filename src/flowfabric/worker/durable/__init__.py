"""Durable calls of handlers: what they have done is recorded, and never done again.

calls          the calls, as methods of the context
child_calls    those for children
sync_calls     the same for handlers that run in a thread
durable        journal, parking and services of one attempt
journal        what is recorded, what the handler asked for, what is to be written
keys           the keys of calls
values         values as bytes and back
settings       how a task's durable calls behave
step           a step as it is declared
steps          functions whose results are recorded
step_errors    errors of steps, stored and raised again as the same class
step_tx        steps in transactions
waits          sleeps and signals by name
waitpoints     waitpoints and their conditions
waitpoint_look what waitpoints have received, and whether more can come
select         the first of several
children       child executions
restart        a handler begins anew
compensations  calls that run unless the execution succeeds
compensator    the handler that makes them
awaited        what a handler waits for
looks          what running handlers wait for, looked at once a second
after_turns    waiting for turns of the event loop
lease_lost     the engine refuses a call, because the lease is gone
parking        when an attempt gives up its lease to wait
services       the statements of all attempts of a worker, gathered
diverged       what becomes of a handler that made other calls than before
"""
