"""What a log says about its cascade: whether it can be learned, and what that would save."""
