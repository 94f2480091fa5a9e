"""What the project ships to run without any download: a small GPT-2 (`models.shipped`) and a small task, both made for it."""
