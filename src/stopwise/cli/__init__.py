"""The ``stopwise`` command line, one module per command."""
