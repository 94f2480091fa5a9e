"""Trust in predictions: promised error rates, novelty, and the rows to label next."""
