"""Compiled numerics: arrays in, arrays out; knows no policy and no I/O."""
