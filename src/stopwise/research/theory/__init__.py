"""What the truth implies: the optimal arm and regret."""
