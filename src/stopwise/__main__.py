"""``python -m stopwise`` is ``stopwise``."""

from stopwise.cli.main import main

if __name__ == "__main__":  # worker processes import this file
    main()
