"""Prompts as tokens with one shared prefix, packed into rows of one static shape."""
