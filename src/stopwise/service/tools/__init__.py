"""What can be done with an event log besides serving it: read, check, copy, shorten."""
