"""How good a saved classifier is on rows whose labels are known."""
