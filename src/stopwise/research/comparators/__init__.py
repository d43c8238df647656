"""Comparators: rules that are given the truth, to measure policies against."""
