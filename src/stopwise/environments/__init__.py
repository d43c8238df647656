"""Environments: contexts, what the arms say, and the truth behind them."""
