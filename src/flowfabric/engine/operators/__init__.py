"""Operator controls: each locks its rows, decides row by row and leaves operator events.

A control of executions has a plural in the same module, for up to 1,000 executions at once.

    cancel_execution               an execution that has not ended ends as cancelled
    override_complete              an execution ends with a result in place of its worker
    override_fail                  an execution fails in place of its worker
    override_delay                 an execution is delayed in place of its worker
    replay_execution               an execution that has ended runs once more
    resume_execution               a suspended execution goes on, whatever it waited for
    revoke_lease                   an execution is claimable again, its holder is refused
    change_priority                an execution changes its place in the queue
    block_execution_for_admission  an execution that waits for a worker is held back
    unblock_execution              an execution that was held back goes on
    wake_execution                 an execution that is delayed is claimable now
    set_execution_tag              one tag of an execution gets a value
    cancel_flow                    a flow is cancelled with its members
    replay_flow                    what keeps a flow from being completed runs again
    plan_replay                    which members of a flow would run again, and which would wait
    restart_members                members that were chosen run again or wait again
    override                       what the three overrides share
    control                        the frame that the controls of executions share
"""
