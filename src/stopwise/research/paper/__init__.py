"""The paper's experiments, with one module for each table and figure, and their report."""
