"""What every test relies on."""

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and every process they
# start inherits that; tests that interrupt a process must mean it.
signal.signal(signal.SIGINT, signal.default_int_handler)
