"""API tokens: who may call the server, and what for. Only a hash of a token is stored.

create_token  a new token, which is told once
find_token    what the holder of a token may do
has_tokens    is there a token at all?
list_tokens   the tokens, newest first
revoke_token  a token is no longer valid
secret        how a token is made and checked
"""
