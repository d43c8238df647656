"""The service over HTTP: who may come in, what is said there, and how a refusal looks."""
