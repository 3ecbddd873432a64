"""Passes of one probe on its running servers."""
