"""Fine-tuning, the supervised baseline: a BERT or decoder with a classification head, trained on the train rows."""
