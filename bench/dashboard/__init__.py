"""`python -m bench dashboard`: pages, searches, viewers and the graph, against their bars."""

from bench.dashboard.main import main

__all__ = ["main"]
