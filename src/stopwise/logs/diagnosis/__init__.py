"""Diagnosis of a log: whether its cascade can be learned, and the saving."""
