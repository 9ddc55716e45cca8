"""The worker process: claims executions, runs their handlers, records the outcomes.

loop              `Worker`: starts the parts below, claims, stops in order
claims            claims executions, also while the database is in trouble
unanswered_claims what claims got whose answer was lost
background        tasks beside the claim loop, and how they end
next_work         when a worker that found nothing claims again
passed_over       what a claim passes over because it is locked
idleness          when a worker that runs until it is idle may stop
slots             runs claimed attempts, at most `concurrency` at a time
settings          the settings of one worker process
create_schedules  the schedules of the application that are missing are created
signals           SIGTERM and SIGINT stop the worker
frozen_heap       the garbage collector passes over what was loaded before the start
run_attempt       runs one attempt to its outcome
repeat_while_leased  repeats a handler's call over trouble with the database
running_attempt   `RunningAttempt`, and `HeldLeases`: the attempts of this process
renewer           renews held leases and sends heartbeats, in a thread
renewal_schedule  when the renewer does what
loop_watch        whether a handler blocks the event loop
watch_leases      wakes the renewer when a lease was ended by a decision elsewhere
outcome_recorder  writes outcomes to the database in batches
log_outcomes      the log records of attempts that did not succeed
log_context       which attempt a log record comes from
transaction       the transaction that a handler may have, committed with its result
transaction_pool  the connections for such transactions
claimed_task      `ClaimedTask`: a claimed execution that the caller runs
handler           `Handler`: how executions of one kind are run; exceptions become failures
stored_traceback  the traceback of an error, bounded
run_task          runs a task's function: dependencies, middleware
environment       threads, child processes and dependencies that all tasks of a worker share
context           `Ctx`: what a handler is given
upstreams         the results of upstreams, decoded to what their tasks return
children          how a handler starts child executions and waits for them
child_batch       the children of one such call
threads           threads for plain functions, and those that are stuck
processes         a pool of child processes for `executor="process"`
child_process     the program that such a child process runs
forwarded_logs    what is logged in a child process reaches its worker
frames            the messages between a worker and its child processes
"""
