"""The worker: claims executions, runs handlers, keeps leases alive, reports outcomes."""
