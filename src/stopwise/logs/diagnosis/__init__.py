"""Diagnosis of a log: whether its cascade can be learned, and how much that would save."""
