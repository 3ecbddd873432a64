"""The static checks: every module exports ``CHECKS``."""
