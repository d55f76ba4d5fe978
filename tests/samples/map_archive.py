"""Artifacts: tools save two versions of a file and read them back; the model loads one itself."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.artifacts.file_artifact_service import FileArtifactService
from google.adk.tools.load_artifacts_tool import load_artifacts_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> LlmAgent:
    async def draw_map(place: str, tool_context: ToolContext) -> dict[str, Any]:
        """Draw a map and keep it."""
        ledger.add("tool", "draw_map", place)
        drawing = types.Part.from_bytes(data=place.encode(), mime_type="text/plain")
        version = await tool_context.save_artifact("map.txt", drawing)
        return {"version": version}

    async def compare(tool_context: ToolContext) -> str:
        """Compare the versions of the map."""
        found = [await tool_context.load_artifact("map.txt", version) for version in (0, 1)]
        texts = [part.inline_data.data.decode() for part in found if part and part.inline_data]
        names = await tool_context.list_artifacts()
        ledger.add("tool", "compare", *texts)
        return f"{names}: {' to '.join(texts)}"

    def look(asked: Any) -> Any:
        seen = [part.text for content in asked.contents for part in content.parts or ()]
        known = any(text and "map.txt is" in text for text in seen)
        return says(f"The map shows {heard(asked)}" if known else "I see nothing")

    return LlmAgent(
        name="cartographer",
        model=scripted(
            ledger,
            "cartographer",
            calls(("draw_map", {"place": "bay"})),
            calls(("draw_map", {"place": "bay and cape"})),
            calls(("compare", {})),
            calls(("load_artifacts", {"artifact_names": ["map.txt"]})),
            look,
        ),
        tools=[draw_map, compare, load_artifacts_tool],
    )


def services(ledger: Ledger) -> dict[str, Any]:
    return {"artifact_service": FileArtifactService(f"{ledger.path}.artifacts")}


SAMPLE = Sample(
    build=build,
    services=services,
    messages=("draw the bay",),
    rows={
        ("model", "cartographer"): 5,
        ("tool", "draw_map", "bay"): 1,
        ("tool", "draw_map", "bay and cape"): 1,
        ("tool", "compare", "bay", "bay and cape"): 1,
    },
    last="The map shows bay and cape",
)
