"""Measure a saved classifier on labelled rows."""
