"""Tables beside the paper's numbers, figures and maps, and pages that hold them.

records → results → tables and figures → sections → page
"""
