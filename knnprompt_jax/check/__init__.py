"""Prove the program on the devices that JAX finds, and measure its speed there."""
