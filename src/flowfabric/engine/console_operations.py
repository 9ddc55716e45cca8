"""The operations of `Engine` that consoles need: activity, changes of many, saved queries."""

from __future__ import annotations

from flowfabric.engine.activity import (
    count_ended,
    read_activity,
    read_lane_activity,
    read_usual_times,
)
from flowfabric.engine.bulk import (
    list_bulk_actions,
    list_bulk_targets,
    preview_bulk_action,
    read_bulk_action,
    start_bulk_action,
    stop_bulk_action,
)
from flowfabric.engine.events import list_ended_leases
from flowfabric.engine.operation import snapshot, statement, transaction
from flowfabric.engine.queries import forget_query, list_queries, save_query
from flowfabric.engine.suspensions import (
    count_waitpoints_by_kid,
    list_closed_waitpoints,
    list_reviews,
    list_signals,
)


class ConsoleOperations:
    """A part of `Engine`, which says how each operation runs."""

    read_activity = snapshot(read_activity.read_activity)
    count_ended = statement(count_ended.count_ended)
    read_lane_activity = statement(read_lane_activity.read_lane_activity)
    read_usual_times = statement(read_usual_times.read_usual_times)
    start_bulk_action = transaction(start_bulk_action.start_bulk_action)
    preview_bulk_action = snapshot(preview_bulk_action.preview_bulk_action)
    read_bulk_action = statement(read_bulk_action.read_bulk_action)
    list_bulk_actions = statement(list_bulk_actions.list_bulk_actions)
    list_bulk_targets = statement(list_bulk_targets.list_bulk_targets)
    stop_bulk_action = transaction(stop_bulk_action.stop_bulk_action)
    count_waitpoints_by_kid = statement(count_waitpoints_by_kid.count_waitpoints_by_kid)
    list_ended_leases = statement(list_ended_leases.list_ended_leases)
    list_closed_waitpoints = statement(list_closed_waitpoints.list_closed_waitpoints)
    list_reviews = statement(list_reviews.list_reviews)
    list_signals = statement(list_signals.list_signals)
    save_query = statement(save_query.save_query)
    list_queries = statement(list_queries.list_queries)
    forget_query = statement(forget_query.forget_query)
