"""Changes of many executions: jobs that any process carries on, in batches, each execution once.

start_bulk_action    a change of what a search finds, or of executions by id, begins
preview_bulk_action  what it would change
read_bulk_action     how far it is
list_bulk_actions    the changes of before, newest first
list_bulk_targets    what became of each execution
stop_bulk_action     it ends after the batch that runs
run_bulk_actions     sweep: the next batch
action               what can be done to many executions, and how
"""
