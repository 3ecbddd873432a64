"""Requests to a server and its answers, bounded in time and size."""
