"""GGUF files: the weights, the shape and the tokenizer of a model in one file, as llama.cpp reads them."""
