"""Proofs of durable handlers: their steps, suspensions and signals, while workers are killed."""
