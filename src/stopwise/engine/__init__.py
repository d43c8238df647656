"""The compiled engine: numerical kernels on arrays, independent of policies and I/O."""
