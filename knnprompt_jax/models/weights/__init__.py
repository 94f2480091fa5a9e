"""Weight files: their tensors, and where each belongs in the arrays of a model."""
