"""The engine beside a model of it in plain Python: same calls, same answers, same state."""
