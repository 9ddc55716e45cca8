"""The registry of worker processes and their events.

register_worker       a process is registered with what it offers
heartbeat_worker      a process is alive
mark_worker_dead      a process is deleted
hold_worker_lock      a session holds the lock of its process
list_workers          the processes of a namespace
find_unserved         kinds that no live worker serves
list_unserved_routes  work that waits although no live worker can run it
list_worker_events    their events
list_namespaces       the namespaces that have executions or workers
expire_workers        sweep: processes without heartbeats are deleted
recover_dead_workers  sweep: leases of processes whose session has ended are voided
prune_worker_events   sweep: old events are deleted
"""
