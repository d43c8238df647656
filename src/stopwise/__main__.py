"""``python -m stopwise``: the command line."""

from stopwise.cli.main import main

if __name__ == "__main__":  # worker processes import this file, too
    main()
