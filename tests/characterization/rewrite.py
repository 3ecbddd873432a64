"""Write the golden files anew: ``python -m tests.characterization.rewrite [NOUN ...]`` (all without a name)."""

import sys

from tests.characterization.golden import path_of
from tests.characterization.nouns import NOUNS


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - NOUNS.keys())
    if unknown:
        print(f"no golden file is named {', '.join(unknown)}; known: {', '.join(NOUNS)}")  # noqa: T201 - a command
        return 2
    for name in names or NOUNS:
        made = NOUNS[name]()
        path_of(name).write_text(made, encoding="utf-8")
        print(f"{path_of(name)}: {len(made.splitlines())} lines")  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
