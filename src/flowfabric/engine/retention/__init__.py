"""Executions that ended long ago are deleted.

delete_finished  sweep: by the retention of each lane
trim_retention   on request, by lane, age and filter
count_trimmable  how many a trim would delete
trim             the filter of a trim
"""
