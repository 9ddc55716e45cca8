"""The client: submits calls, starts flows, waits for results, controls executions.

client            `Client`: connected to one database, for one namespace
handle            `Handle`: one execution
flow_handle       `FlowHandle`: one flow
flow_results      `FlowResults`: the results of one flow
admin             `Admin`: what operators do
schedules         `Schedules`: the schedules of the client's namespace
enqueue           submits on the caller's own connection and transaction
create_in_chunks  submits many executions in one transaction
signals           signals by name, and with tokens
subscriptions     events as they happen
options           the options of a submit
new_executions    the executions that a submit creates
outcome_waiter    waits for outcomes, with one query for all of them
flow_waiter       waits for flows, with one query for all of them
unserved_warning  warns if only a worker elsewhere serves a submitted kind
list_all_members  reads the members of a flow, page by page
pictures          a flow as a graph: a tree, Mermaid, Graphviz
identity          user and host, as recorded with every change
"""
