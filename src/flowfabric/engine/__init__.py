"""What the engine does: the spine that moves executions, and the rooms around it."""
