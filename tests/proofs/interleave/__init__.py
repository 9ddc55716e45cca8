"""P2: any two operations, statement by statement in every order, come to one of two outcomes."""
