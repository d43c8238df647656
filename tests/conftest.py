"""Hypothesis profiles and signal handling for all tests."""

import signal

from hypothesis import settings

# By default, few examples and the same in every run; `make test-full` uses many
# (--hypothesis-profile=full).
settings.register_profile("change", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=400, deadline=None)
settings.load_profile("change")

# Background jobs of a shell ignore SIGINT, and so would the processes that tests start and
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
