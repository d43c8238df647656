"""The dashboard: pages for people, made on the server from the state of the service."""
