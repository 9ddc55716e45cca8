"""The command `ff`: one module per command or group of commands; each calls `Engine` or `Client`.

main                the command line, and how it ends
exit_codes, usage   which error gives which exit code; errors in words of the command line
dev, example        `ff dev`: a database, a worker, and the example application
only_instance       one `ff dev` in a directory
suggested_call, example_values
                    a call of a task that can be tried, made up from its annotations
migrate, doctor     `ff migrate`, `ff doctor`
worker, supervisor  `ff worker`, and its worker processes
submit, explain     `ff submit`, `ff explain`
executions          `ff executions list | show | history`
bulk                a control of many executions
execution_controls  `ff executions cancel | replay | …`
execution_stream    `ff executions stream`
progress            the bar that `ff submit --wait` shows
flows               `ff flows`, with flows as trees and graphs
lanes, workers, leases, events, retention, keys
                    the groups of the same names

connection          which database a command uses
logs                what `ff worker` and `ff dev` log, as text or JSON
options, given_ids  the options and ids that commands share
completion          lanes and kinds, completed in the shell
output, confirm     tables, JSON and messages; asking before a large change
values              payloads and results for people
durations, loading  parsing `15m`; importing `MODULE:APP`
"""

from flowfabric.cli.main import main

__all__ = ["main"]
