"""API tokens and sessions: who may call the server, and what for. Only hashes are stored.

create_token     a new token, which is told once
find_token       what the holder of a token may do
has_tokens       is there a token at all?
list_tokens      the tokens, newest first
revoke_token     a token is no longer valid
secret           how a token is made and checked
open_session     a browser is logged in by a token
read_session     who a session belongs to
list_sessions    the open sessions of one token
close_session    a browser is logged out
forget_sessions  sessions that are over are deleted
"""
