"""The log of a server: read while it grows, and what it says of a boot."""
