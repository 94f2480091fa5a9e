"""Anchors on devices."""
