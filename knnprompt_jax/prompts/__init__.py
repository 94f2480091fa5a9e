"""Text to tokens: prompts with one shared prefix, packed into rows of one static shape."""
