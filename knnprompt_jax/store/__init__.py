"""Anchors on devices, and the search for the nearest of them."""
