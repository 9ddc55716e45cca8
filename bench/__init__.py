"""Benchmarks: FlowFabric beside its peers, in one run, on one Postgres.

__main__      the command line
runner        runs every scenario for every system, in rounds
adapter       runs the adapter of one system
scenarios     the tables of scenarios
systems       the table of systems
base          another commit of this repository, to compare with
steady        a steady load of some minutes
targets       the table of ratios to reach
results       figures by scenario, system and round
report        tables and JSON
postgres      the Postgres server of a run
environments  installs the peers and the base
peers         one adapter script for each system; `floor_peer` is a bare queue in hand-written SQL
drivers       asyncpg compared with psycopg 3
"""
