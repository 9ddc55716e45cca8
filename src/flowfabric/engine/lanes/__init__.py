"""Lanes are the named queues of executions, each with a state and a retention.

register_lanes      lanes exist
list_lanes          the lanes, page by page
count_by_lane       the lanes with their executions that have not ended
read_gauges         these, and how much is to be dispatched, for a monitor
set_lane_state      a lane is paused, drained, disabled or made active
set_lane_retention  how long ended executions are kept
lane_version        what changes with both, so that a change does not overwrite another
"""
