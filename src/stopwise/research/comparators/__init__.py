"""Comparators: reference rules that use the ground truth."""
