"""Values as people read them.

durations   lengths of time, ages and sizes
json_text   stored JSON, formatted without being decoded
sentences   states, policies and events in words
"""
