"""Settings → runs → records."""
