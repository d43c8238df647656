"""Environments: contexts, outputs of the arms, and the truth behind them."""
