"""Check that this machine's devices compute correctly, measure their speed, and estimate jobs on other devices."""
