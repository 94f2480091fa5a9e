"""The jobs of people with their own texts."""
