"""The paper's tables and figures as grids of runs, each planned so that the language model reads no prompt twice.

settings → cells → plan (passes over subjects) → runner → records
"""
