"""Proof that grants are valid as long as their keys are, and that no other grant is accepted."""
