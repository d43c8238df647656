"""Environments with known labels, comparators, experiments, theory and the paper."""
