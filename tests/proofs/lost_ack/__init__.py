"""G7: the answer to a commit is lost, and the call is made again."""
