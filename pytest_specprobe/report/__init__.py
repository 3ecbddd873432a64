"""Write what was seen: report.json, terminal, JUnit."""
