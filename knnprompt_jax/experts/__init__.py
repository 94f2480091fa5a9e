"""Experts that score the classes of a text, and the pool that weighs them: states and texts in, probabilities out."""
