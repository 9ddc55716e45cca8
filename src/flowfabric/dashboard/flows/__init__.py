"""What the pages of flows share.

reading   a flow with its members and edges, read once a second for all viewers
drawing   from a flow that was read to its picture
watching  the states of the members of a flow, as they change
"""
