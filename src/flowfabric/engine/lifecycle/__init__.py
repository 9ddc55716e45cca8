"""The spine: every move of an execution's state, one module per move."""
