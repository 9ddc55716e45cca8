"""`python -m flowfabric.cli` is `ff`."""

from flowfabric.cli.main import main

main()
