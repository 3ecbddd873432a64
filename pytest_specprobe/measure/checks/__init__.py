"""Self-checks of a measurement: each returns findings."""
