"""The domain of the service: cascades, rounds and state, independent of HTTP and storage."""
