"""Searches that people have saved by a name.

save_query    a search is saved, or saved anew
list_queries  the searches that somebody may use
forget_query  a search is deleted
"""
