"""The former place of the sections, which `page` holds."""

from knnprompt_jax.report.page import Listing, Matrix, Section

__all__ = ["Listing", "Matrix", "Section"]
