"""Turn requests into counts, and counts into estimates with intervals."""
