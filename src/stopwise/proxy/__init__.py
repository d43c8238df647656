"""An OpenAI-compatible proxy in front of cascades of models."""
