"""Anchors on devices and in folders, and the search for the nearest of them."""
