"""The service over HTTP: access, routes, bodies and errors."""
