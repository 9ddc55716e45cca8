"""The routes, one module per noun; `ROUTES` is the whole table.

executions          submit, outcomes                  execution_reads     one execution, read
execution_controls  one execution, changed            flows               flows, members and edges
signals             signals and waitpoints            streams             frames of handlers
claims              claims of workers                 work                outcomes of workers
durable_work        journals, waits, frames           worker_watch        lost leases, what is due
flow_outcomes       how flows ended                   quotas              limits
workers             the registry of workers           grants              claims by id
lanes               lanes and retention               events              events, listed and live
schedules           schedules                         keys                keys and API tokens
info                probes, metrics, documents        callbacks           answers by token alone
budgets             budgets                           searches            search, count, failures
flow_lists          flows, listed                     activity            what ended over time
bulk                changes of many, saved searches   inspections         signals, reviews, tables
submit_options      limits and keys of a submit       flow_controls       flows, changed
schedule_sync       schedules of an application
"""

from typing import Final

from flowfabric.server.routes import (
    activity,
    budgets,
    bulk,
    callbacks,
    claims,
    durable_work,
    events,
    execution_controls,
    execution_reads,
    executions,
    flow_controls,
    flow_lists,
    flow_outcomes,
    flows,
    grants,
    info,
    inspections,
    keys,
    lanes,
    quotas,
    schedule_sync,
    schedules,
    searches,
    signals,
    streams,
    work,
    worker_watch,
    workers,
)
from flowfabric.server.table import Route

ROUTES: Final[tuple[Route, ...]] = (
    *executions.ROUTES,
    *searches.ROUTES,
    *execution_reads.ROUTES,
    *execution_controls.ROUTES,
    *flow_outcomes.ROUTES,
    *flow_lists.ROUTES,
    *flows.ROUTES,
    *flow_controls.ROUTES,
    *signals.ROUTES,
    *callbacks.ROUTES,
    *streams.ROUTES,
    *claims.ROUTES,
    *work.ROUTES,
    *worker_watch.ROUTES,
    *durable_work.ROUTES,
    *workers.ROUTES,
    *grants.ROUTES,
    *lanes.ROUTES,
    *events.ROUTES,
    *activity.ROUTES,
    *bulk.ROUTES,
    *inspections.ROUTES,
    *schedules.ROUTES,
    *schedule_sync.ROUTES,
    *budgets.ROUTES,
    *quotas.ROUTES,
    *keys.ROUTES,
    *info.ROUTES,
)
"""Every route of the server."""
