"""Environments: simulated contexts and outputs with their ground truth."""
