"""The proofs of docs/guarantees.md: quick ones run with the tests, all of them by `make prove`."""
