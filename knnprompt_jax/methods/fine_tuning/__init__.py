"""The supervised baseline: a BERT or GPT-2 with a classification head, all of its weights trained on the few shots."""
