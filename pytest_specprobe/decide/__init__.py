"""Turn estimates into a verdict; pure functions."""
