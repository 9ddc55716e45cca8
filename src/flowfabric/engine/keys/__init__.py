"""The keys that sign grants and waitpoint tokens."""
