"""Flows: graphs of executions, and how ends travel through them."""
