"""Estimates of what a job takes on accelerators: memory, operations, and a lower bound of its time."""
