"""A grant reserves an execution for one worker, which then claims or reclaims it by its id.

claim_for_worker         a grant for the best execution of a lane
issue_claim_grant        a grant to claim one execution
issue_reclaim_grant      a grant to reclaim one execution whose lease was lost
issue_grant_and_claim    an operator claims one execution at once
claim_execution          a worker claims by its grant
claim_resumed_execution  a worker goes on with an interrupted attempt by its grant
claim_from_resume_grant  the same, with the signed text of the grant, or nothing
reclaim_execution        a worker replaces a lost attempt by its grant
reclaimable              whether an execution can be reclaimed
verify_grant             whether a grant is authentic and valid
grant                    a grant, its written form and its signature
stored_grant             the stored grants of one execution
expire_grants            sweep: expired grants are deleted
"""
