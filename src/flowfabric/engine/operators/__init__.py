"""What operators do. Each control locks its rows, decides row by row and leaves operator events.

A control of executions has a plural in the same module, which takes up to 1,000 of them at once.

- `cancel_execution`: an execution that has not ended ends as cancelled.
- `replay_execution`: an execution that has ended runs once more; a skipped member waits again.
- `revoke_lease`: an execution is taken away from its holder, and is claimable again.
- `change_priority`: an execution that waits for a worker changes its place in the queue.
- `block_execution_for_admission`: an execution that waits for a worker is held back.
- `unblock_execution`: an execution that was held back goes on.
- `set_execution_tag`: one tag of an execution gets a value.
- `cancel_flow`: a flow is cancelled with its members, as far as its cancellation policy goes.

`control` is the frame that the controls of executions share.
"""
