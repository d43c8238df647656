"""An OpenAI-compatible endpoint in front of a cascade of models; its rounds are a service's."""
