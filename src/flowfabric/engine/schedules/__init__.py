"""Schedules: executions that are created at certain instants, each once.

create_schedule       schedules exist
update_schedule       a schedule gets another definition, which counts from now
pause_schedule        a schedule does not fire
resume_schedule       it fires again
trigger_schedule      it is fired once, now
backfill_schedule     the instants of a past time are fired
delete_schedule       a schedule and its ledger are gone
get_schedule          one schedule
list_schedules        the schedules of a namespace
list_schedule_fires   what became of its instants
count_schedules       how many there are in each state
preview_schedule      its next instants
explain_schedule      why it fires or does not
diff_schedules        how the definitions of an application differ from what is stored
sync_schedules        they are stored
fire_schedules        sweep: what is due is fired
release_queued        sweep: executions that waited for their turn can be claimed
prune_schedule_fires  sweep: old rows of the ledger are deleted
definition            a schedule as its caller defines it
schedule              a schedule as it is stored
overlap               whether an instant fires while an earlier execution runs
plan_fires            what becomes of the instants that are due
record_fires          their executions are created, and the ledger has all
open_executions       the last executions that have not ended
add_latest            a schedule remembers executions that were created out of turn
wake_sweeper          the process that fires schedules looks at once
"""
