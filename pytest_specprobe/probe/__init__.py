"""Run the phases of one probe in order."""
