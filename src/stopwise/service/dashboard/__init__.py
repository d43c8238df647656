"""The dashboard: pages for people, rendered on the server from the state of the service."""
