"""Run the Python blocks of one page, in order, in one namespace.

    python -m tests.support.run_blocks PAGE

Blocks with a top-level ``await`` share one event loop, as in a notebook. A failing block is
reported with the page's own line numbers.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page its text begins at."""

    language: str
    text: str
    line: int


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in re.finditer(r"^```(\w+)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)


def compiled(block: Block, page: Path) -> CodeType:
    padded = "\n" * (block.line - 1) + block.text
    return compile(padded, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def main(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks_of(page):
            if block.language != "python":
                continue
            code = compiled(block, page)
            result = eval(code, namespace)
            if inspect.iscoroutine(result):
                runner.run(result)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
