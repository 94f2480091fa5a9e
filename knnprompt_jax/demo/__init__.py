"""A small GPT-2 (`models.shipped`) and a small task that need no download, both made for this project."""
