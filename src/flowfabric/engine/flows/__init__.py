"""Flows are graphs of executions: they are built, submitted, cancelled, described and listed here.

Building:

    create_flow            a flow without members
    add_execution_to_flow  an execution becomes a member
    new_flow               a whole graph to submit, and its checks
    submit_flow            a flow with all members and edges, or nothing of it
    submission             the statement that submits flows, its parameters and answers
    flow_row               the row of a flow, which every change of the graph locks first
    lock_flows             the rows of several flows are locked in one order
    lock_as_seen           a flow is locked, if it has not changed since it was read
    touch_flow             a flow has changed, though its row says the same

Cancelling:

    cancel_flow_header     the flow is cancelled, its backlog lists the members that are to end
    cancel_backlog         the backlog of a cancelled flow
    end_cancelled_members  a batch of members in the backlog of one flow ends
    ack_cancel_member      one member is deleted from the backlog
    reconcile_cancels      sweep: members of due backlogs end
    reopen_flow            a cancelled flow is open again

Reading:

    describe_flow          one flow with the counts of its members and their joins
    list_flows             flows, page by page
    list_flow_members      the members of one flow, page by page
    read_flow_states       the state of every member of one flow, and nothing else
    read_flow_outcomes     the outcomes of many flows
    get_flow_namespace     the namespace of a flow
    describe_edge          one edge
    list_edges             the edges of a flow, or of one member
    edge                   an edge as it is read
    get_flow_tag           one tag
    set_flow_tag           one tag gets a value
    flow_tags              the checks of tags

Summaries:

    summary                the SQL that writes a summary from the members
    project_flow_summary   the summary of one flow is computed again
    project_unsettled      sweep: summaries of flows that have not settled are computed again
    unsettle_summary       a summary is open again
    delete_empty_flows     sweep: old flows without members are deleted
"""
