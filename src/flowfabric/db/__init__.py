"""Postgres: connections, transactions, typed rows, notifications and migrations.

pool             how a connection is opened, and the pool of a process
connect_limit    one attempt to connect at a time, with pauses after failures
connection       the classes of our connections
array_codecs     arrays of parameters, encoded here instead of by the driver
array_types      the arrays that the driver need not ask the server about
kept_alive       a connection whose idle transaction is kept alive
transaction      run a body in a transaction, with the only retry loop
batcher          sends concurrent requests in batches
foreign          statements on a connection of the caller, with any driver
rows             run a statement and read its rows as structs
faults           SQLSTATE to FlowFabric error
steps            a hook for tests before each statement and commit
listen           one LISTEN connection per process
waiter           wait for a change: notified, else polling
notifier         notifications of a process, gathered
signals          wake-ups inside this process, without the database
expire_waiters   delete registrations of waiters that ended
vacuum_queue     vacuum the queue before its dead rows slow claims down
vacuum_leases    vacuum the leases and a short queue as often as leases end
migrate          apply migrations, then functions
apply_functions  apply the SQL functions whose text changed
grant_roles      grant rights to the roles of processes and readers
store_counts     store the partition counts, unless there are some, and read them
boot             checks before a process serves: schema version and partition counts
doctor           checks of a database for `ff doctor`
doctor_pooler    those for a database behind a pooler
finding          what a check found
table_health     how large the tables are
server_version   which Postgres it is
embedded         a Postgres server from the `flowfabric[embedded]` extra
schema           write `schema.sql` from the catalogs

Tables are in `migrations/`, SQL functions in `functions/`. This package knows no engine operation.
"""
