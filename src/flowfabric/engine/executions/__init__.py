"""Reading executions: one, many, their results, their attempts."""
