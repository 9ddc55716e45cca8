"""S12: callers that take all they can get, and what an honest one notices of them."""
