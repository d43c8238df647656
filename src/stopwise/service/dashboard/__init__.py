"""The dashboard: HTML pages rendered on the server from the state of the service."""
