"""Budgets: what work may use of tokens, money or calls, and what it has used.

create_budget                 a budget exists
update_budget_limits          it has other limits
report_usage                  a worker counts what its execution has used
report_usage_admin            an operator counts usage
record_spend                  usage is counted for an execution, which can give it back
release_budget                what an execution has spent is given back, by an operator
give_back                     the same, by its handler
reset_budget                  a new period begins
get_budget_status             limits, usage and breaches of a budget
list_budgets                  the budgets, page by page
list_spend                    which executions have spent most
list_own_spend                what one execution has spent
read_budget_history           how much was used, over time
read_attached                 what names a budget and runs, or waits for a worker
list_held_back                which executions a budget holds back
read_budget_usage_and_limits  usage and limits, also of a budget that does not exist
reset_budgets                 sweep: periodic budgets that are due are reset
release_lost_races            sweep: what executions that lost a race have spent is given back
sample_budget_usage           sweep: what is used now is noted once a minute
compact_budget_usage          sweep: notes of minutes become notes of hours, and are deleted
prune_usage_keys              sweep: keys of reports are deleted a day after
lock_budget_as_seen           it is locked, if it has not changed since it was read
usage                         a report and its answers
status                        a budget as it is stored
unblock_spent                 executions that budgets held back can be claimed
"""
