"""Reads of executions: none changes anything.

describe_execution          one execution in full
explain_execution           why an execution does not run, or how it ended
explanation                 the explanation, and the facts that it is made from
reasons                     makes the reasons from the facts
wait_reasons                the reasons of suspended and sleeping executions
budget_reason               which budget holds an execution back
read_limit                  the limit that holds an execution back
read_waits                  what a suspended execution waits for
words                       instants, spans and numbers in words
search_executions           executions by state, kind, lane, tag, time and more
search                      what to look for, and where it is found
search_sql                  the parts of the statements of a search
unserved_routes             the routes that no live worker serves
count_by_state              how many executions are in each state that is not an end
count_matching              how many executions a search finds
group_failures              executions that failed, by cause
search_cursor               where a page of a search begins
exceptional_states          the stored words of public states
list_executions             the ids of one partition
find_execution              the execution that has a uuid
locate_executions           full ids from uuids alone
locate_execution_by_key     the execution of an idempotency key
read_lease_expiries         when the leases of executions expire
list_attempts               the attempts of one execution
count_claimable             executions that a worker could claim, locked or not
count_expiring_leases       leases that expire soon, on what a worker could run
list_expired_leases         expired leases that no sweep has voided
read_outcomes               the outcomes of executions that have ended
look_at_waits               what has happened that handlers may wait for
read_execution              the stored row of one execution
read_execution_state        the public state
read_execution_info         the state vector
read_execution_context      the input
read_policy                 the policy, and what was used of it
read_exec_core_fields       columns by name
read_current_attempt_index  the index of the current or next attempt
read_total_attempt_count    how many attempts began
get_execution_result        the result
get_execution_tag           one tag
get_execution_namespace     the namespace
read_namespaces             the namespaces of many executions
resolve_execution_flow_id   the flow
facts                       the columns that the last five operations share
"""
