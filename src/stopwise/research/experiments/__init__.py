"""Experiments: where policies and environments meet."""
