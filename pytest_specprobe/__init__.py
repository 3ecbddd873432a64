"""A pytest plugin that says whether an EAGLE-3 drafter pays on its target."""

__version__ = "0.1.0"
