"""What a job would take on accelerators that are not there: its programs compiled for them, and what the compiler says."""
