"""What crosses the wire: engine types in the form that JSON and MessagePack have of them.

forms      the form of a type: what is on the wire, how a value is written and read back
payloads   payloads: JSON as it is, everything else as bytes
problems   errors as problem documents (RFC 9457)
requests   the bodies that routes take, where they are no type of the engine
"""
