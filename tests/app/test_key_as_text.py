"""An API key that a person answers as a text reaches whoever asked for it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.auth import AuthConfig, AuthCredential, AuthCredentialTypes
from google.adk.tools import ToolContext
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import InvalidAnswer
from durable_adk.testing import ScriptedModel, calls, says
from tests.app.conftest import ON, MakeApp
from tests.shapes.credentials import api_key, oauth

SEALED = {**ON, "encryption": {"keys": {"k1": base64.b64encode(bytes(32)).decode()}}}


def by_tool(auth: AuthConfig, got: list[str | None]) -> Any:
    def fetch(q: str, tool_context: ToolContext) -> str:
        """Fetch."""
        credential = tool_context.get_auth_response(auth)
        if credential is None:
            tool_context.request_credential(auth)
            return "asked"
        got.append(credential.api_key)
        return q

    return LlmAgent(
        name="desk",
        model=ScriptedModel(script=[calls(("fetch", {"q": "x"})), says("done")]),
        tools=[fetch],
    )


def by_node(auth: AuthConfig, got: list[str | None]) -> Any:
    def gated(ctx: Any, node_input: str) -> str:
        got.append(ctx.get_auth_response(auth).api_key)
        return "done"

    node = FunctionNode(func=gated, name="gated", auth_config=auth, rerun_on_resume=True)
    return Workflow(name="desk", edges=[(START, node)])


def typed() -> AuthConfig:
    """Says its type with the credential that it begins with, too."""
    raw = AuthCredential(auth_type=AuthCredentialTypes.API_KEY)
    return api_key().model_copy(update={"raw_auth_credential": raw})


@pytest.mark.parametrize("auth", [api_key, typed])
@pytest.mark.parametrize("asking", [by_tool, by_node])
async def test_a_key_is_answered_as_text(make_app: MakeApp, asking: Any, auth: Any) -> None:
    got: list[str | None] = []
    app = make_app(asking(auth(), got), config=SEALED)
    out = await app.invoke(user_id="u", message="go")
    (wait,) = out.waits
    assert "'string'" in str(out.resume_schema)
    out = await app.resume(out.execution_id, {wait.id: "planted"})
    assert (out.status, got) == ("completed", ["planted"])


async def test_a_text_is_no_answer_to_a_sign_in(make_app: MakeApp) -> None:
    app = make_app(by_tool(oauth("https://sign.in"), []), config=SEALED)
    out = await app.invoke(user_id="u", message="go")
    (wait,) = out.waits
    assert "'string'" not in str(out.resume_schema)
    with pytest.raises(InvalidAnswer, match="where an API key is asked for") as refused:
        await app.answer(wait.id, "planted")
    assert "planted" not in str(refused.value)
