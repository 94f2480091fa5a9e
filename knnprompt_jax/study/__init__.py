"""Compare methods, reproduce the paper's tables and figures, and fine-tune models to compare with.

settings → job_inputs → runs → engine → records → report
"""
