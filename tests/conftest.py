"""What every test relies on."""

import signal

from hypothesis import settings

# Hypothesis: a few examples, the same in every run, unless `make test-full` asks for many
# (--hypothesis-profile=full).
settings.register_profile("change", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=400, deadline=None)
settings.load_profile("change")

# A shell that starts the tests in the background has them ignore Ctrl-C, and every process they
# start inherits that; tests that interrupt a process must mean it.
signal.signal(signal.SIGINT, signal.default_int_handler)
