"""G21 and G22: many clients at once on one flow, and on a pool of two connections."""
