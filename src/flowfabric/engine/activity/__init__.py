"""How much work ended, how long it waited and how long it ran, over time.

roll_up_activity    sweep: completions are counted by minute, route and outcome
compact_activity    sweep: minutes become hours after a day, and are deleted after 30 days
read_activity       the counts and times of a window, in steps
count_ended         how many ended with each outcome
read_lane_activity  how many ended on each lane, minute by minute
read_usual_times    how long executions of a kind usually run
histogram           counts of durations by their order of magnitude
store_activity      adds counts to those that are stored
"""
