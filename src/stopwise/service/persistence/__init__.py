"""The event log of the service: stores, snapshots and recovery."""
