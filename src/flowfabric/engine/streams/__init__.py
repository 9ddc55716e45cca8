"""Streams: frames that the handler of a running attempt appends for readers.

Holders:

    append_frame      frames of many streams are appended, in order and fenced by the lease

Readers:

    read_stream       the frames from one place to another
    tail_stream       the next frames, as soon as there are any
    follow_stream     the frames of all attempts, until the execution has ended
    read_summary      the document that the patches of a stream have made
    read_state        the summary of the newest attempt that has one

Sweep:

    expire_frames     best-effort frames that are too old are deleted

Shared:

    frame             a frame, as it is appended and as it is read
    cursor            places in a stream
    patch             what may be merged into a summary
    read_frames       frames of many streams, and whether each stream is closed
    reader            the readers of one process, and how they wait
"""
