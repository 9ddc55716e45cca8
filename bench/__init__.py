"""FlowFabric measured beside its peers, in one run, on one Postgres."""
