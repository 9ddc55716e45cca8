"""How much work ended, how long it waited and how long it ran, over time.

roll_up_activity  sweep: completions are counted by minute, route and outcome
compact_activity  sweep: minutes become hours after a day, and are deleted after 30 days
read_activity     the counts and times of a window, in steps
histogram         counts of durations by their order of magnitude
store_activity    adds counts to those that are stored
"""
