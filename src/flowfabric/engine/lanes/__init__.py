"""Lanes: the names under which work waits, and how much of it."""
