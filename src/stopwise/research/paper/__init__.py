"""The paper's experiments: one module for each table and figure, and the report on them."""
