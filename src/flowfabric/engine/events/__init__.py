"""The outboxes: what happened, in order, to whoever subscribes."""
