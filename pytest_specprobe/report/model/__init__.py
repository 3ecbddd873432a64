"""report.json as models: one class per part, from which the published schema is made."""
