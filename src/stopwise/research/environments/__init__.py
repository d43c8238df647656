"""Environments: simulated contexts, outputs of the arms, and their ground truth."""
