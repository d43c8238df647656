"""The domain of the service: cascades, their rounds and the state, without HTTP or storage."""
