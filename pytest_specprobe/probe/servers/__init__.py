"""The servers of one probe: booted, proved, alternated, attached to."""
