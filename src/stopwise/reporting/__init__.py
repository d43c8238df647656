"""Shared parts of reports: pages, figures, tables and number formats."""
