"""The registry of worker processes."""
