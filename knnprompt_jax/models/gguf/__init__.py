"""GGUF files: one file with the weights, the shape and the tokenizer of a model, as llama.cpp reads them."""
