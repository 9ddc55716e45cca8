"""The command `ff`: one module per command or group of commands; each calls `Engine` or `Client`.

main                the command line, and how errors are printed
dev, example        `ff dev`: a database, a worker, and the example application
migrate, doctor     `ff migrate`, `ff doctor`
worker, supervisor  `ff worker`, and its worker processes
submit, explain     `ff submit`, `ff explain`
executions          `ff executions list | show | history`
execution_controls  `ff executions cancel | replay | …`
flows, pictures     `ff flows`, and flows as trees and graphs
lanes, workers, leases, events, retention, keys
                    the groups of the same names

connection          which database a command uses
logs                what `ff worker` and `ff dev` log, as text or JSON
output, confirm     tables, JSON and messages; asking before a large change
values              payloads and results for people
durations, loading  parsing `15m`; importing `MODULE:APP`
"""

from flowfabric.cli.main import main

__all__ = ["main"]
