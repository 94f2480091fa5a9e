"""Runs → records → aggregates."""
