"""The former place of calibration, which `outcomes` holds."""

from knnprompt_jax.report.outcomes import calibration, calibration_error

__all__ = ["calibration", "calibration_error"]
