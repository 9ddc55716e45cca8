"""The engine over HTTP: the same operations as `Engine`, each one request to a server.

address     where the server is, and the token
transport   requests and answers, repeated while the server cannot be reached
row         an operation as a request: derived from its signature
engine      RemoteEngine: one line for each operation
streams     frames and events, which the server sends as they come
"""
