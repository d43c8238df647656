"""Experiments: specs, runs, their store, campaigns and summaries."""
