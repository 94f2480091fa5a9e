"""The options of all commands, methods and classifiers, each declared once.

Nothing here imports JAX or another slow library, so that `--help` and a wrong option are answered within a second.
"""
