"""Run the stages of a cascade, only as deep as a policy decides, and learn from their answers."""
