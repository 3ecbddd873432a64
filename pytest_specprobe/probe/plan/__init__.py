"""What a probe will boot, what it needs and what it costs: known before anything starts."""
