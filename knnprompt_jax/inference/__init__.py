"""Prompts to states: tokens and packing (`prompts`), the language model's pass (`lm`), the cache (`states`)."""
