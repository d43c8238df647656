"""Policies: when to stop. All follow one protocol, and a registry knows them by name."""
