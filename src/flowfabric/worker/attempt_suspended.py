"""What ends a handler whose attempt waits."""


class AttemptSuspended(BaseException):
    """Raised in a handler whose attempt was suspended to wait; it runs again later, from the top.

    Not an `Exception`, so that a handler's own `except Exception` does not catch it.
    """
