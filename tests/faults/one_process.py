"""One process of a life in an interpreter of its own: reads what to do, prints what it found."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.faults.catalogue import CASES
from tests.support.lives import Act, World


def main() -> None:
    given = json.load(sys.stdin)
    world = World(**{**given["world"], "folder": Path(given["world"]["folder"])})
    found = asyncio.run(
        world.perform(
            CASES[given["case"]],
            Path(given["ledger"]),
            given["namespace"],
            Act(**given["act"]),
            sigkill=True,
        )
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
