"""The file formats of a log, one module each; `registry` lists them."""
