"""Running the stages of a cascade in one process."""
