"""Proof that subscribers see every event once and in order, though writers commit out of order."""
