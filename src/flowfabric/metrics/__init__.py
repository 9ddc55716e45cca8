"""Metrics in the text format of Prometheus; needs the extra `flowfabric[metrics]`.

snapshot     the counters of a process as values; those of several processes added up
shared       processes of one command leave their counters in a directory for one another
collector    the counters as metric families of prometheus-client
gauges       numbers that are read from the database, at most every 15 seconds
exposition   the text that a scrape gets
endpoint     the port of a worker that answers scrapes
"""

from flowfabric.metrics.endpoint import MetricsEndpoint
from flowfabric.metrics.exposition import CONTENT_TYPE, exposition
from flowfabric.metrics.gauges import DatabaseGauges
from flowfabric.metrics.shared import SharedCounters

__all__ = ["CONTENT_TYPE", "DatabaseGauges", "MetricsEndpoint", "SharedCounters", "exposition"]
