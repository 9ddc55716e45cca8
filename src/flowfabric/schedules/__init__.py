"""When a schedule fires: its specification, and the instants that follow from it; pure.

spec        cron, interval or one instant; checked when it is made
cron        cron expressions on the time of a wall clock
zones       wall clocks and instants: gaps and repeated hours
next_after  the first instant after another one; the next ones; the jitter of an instant
"""
