"""The HTTP API: access control, routes, request bodies and errors."""
