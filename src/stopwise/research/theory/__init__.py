"""Theory: optimal arms, regret, weak dominance and the paper's bounds."""
