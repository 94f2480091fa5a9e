"""Fine-tuning, the supervised baseline: a BERT or a decoder with a classification head, trained on a split's train rows."""
