"""Postgres: connections, transactions, typed rows, wake-ups, migrations. Knows no operation."""
