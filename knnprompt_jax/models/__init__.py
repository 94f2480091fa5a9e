"""Decoders and their weights."""
