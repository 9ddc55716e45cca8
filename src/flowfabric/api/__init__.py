"""What crosses the wire: engine types in the form that JSON and MessagePack have of them.

forms      the form of a type: what is on the wire, how a value is written and read back
packed_ids ids of many executions as bytes
leaves     ids, instants, durations, leases: each as one text or number
payloads   payloads: JSON as it is, everything else as bytes
problems   errors as problem documents (RFC 9457)
"""
