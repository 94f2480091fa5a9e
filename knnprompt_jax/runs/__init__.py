"""Settings → runs → records, and the fit of a classifier from settings."""
