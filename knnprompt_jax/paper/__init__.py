"""The paper's tables and figures. Each is a grid of runs, planned so that the language model reads no prompt twice.

experiment, settings → cells → grid → records → page
"""
