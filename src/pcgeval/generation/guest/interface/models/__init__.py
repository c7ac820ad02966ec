"""Define the context and the base class of trials."""
