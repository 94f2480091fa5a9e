"""Training a small GPT-2 from text files: documents, tokenizer, optimiser loop, export."""
