"""The command `ff`: one module per noun over the same operations as every other door."""

from flowfabric.cli.main import main

__all__ = ["main"]
