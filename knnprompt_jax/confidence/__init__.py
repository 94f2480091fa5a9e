"""What a classifier knows about its own answers: which of them can be trusted."""
