"""Run the stages of a cascade, only as deep as a policy says, and learn from what they say."""
