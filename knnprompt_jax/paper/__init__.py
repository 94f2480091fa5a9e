"""The paper's tables and figures, each a grid of runs that is planned so that the language model reads no prompt twice.

experiment, settings → cells → plan → records → page
"""
