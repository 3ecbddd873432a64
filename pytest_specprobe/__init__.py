"""pytest-specprobe: does this EAGLE-3 drafter pay on this target?"""

__version__ = "0.1.0"
