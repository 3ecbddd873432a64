"""The shipped validation tests, collected when a drafter is named."""
