"""SQL that several statements share: fragments of one `WITH` list, as constants and builders.

Each fragment begins with the comma that separates it from the CTE before. A builder takes the name
of a CTE to read (`source`) and SQL expressions over the columns of that CTE.
"""
