"""Methods: functions from states and options to predictions."""
