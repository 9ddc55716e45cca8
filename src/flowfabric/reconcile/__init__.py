"""Recovery: the table of sweeps and the one loop that runs them."""
