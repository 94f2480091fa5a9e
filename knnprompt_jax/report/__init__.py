"""Records → tables beside the paper's numbers, figures and maps, and pages that hold them.

records → scores → tables and figures → sections → page
"""
