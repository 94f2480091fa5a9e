"""Throughput of building and searching a datastore, beside the device's limits and other implementations."""
