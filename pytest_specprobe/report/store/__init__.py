"""Runs of the past: kept, found by their key, compared."""
