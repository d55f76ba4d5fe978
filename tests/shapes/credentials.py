"""Shapes that ask the user for a credential: by a tool, an OpenAPI tool, a function node."""

from __future__ import annotations

import asyncio
import base64
import http.server
import random
import threading
import warnings
from collections.abc import Mapping
from typing import Any

import authlib.oauth2.client
from fastapi.openapi.models import APIKey, APIKeyIn, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_handler import AuthHandler
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.exchanger.base_credential_exchanger import ExchangeResult
from google.adk.auth.exchanger.oauth2_credential_exchanger import OAuth2CredentialExchanger
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.openapi_tool import OpenAPIToolset
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import agent
from tests.shapes.shape import Shape
from tests.support.lives import Ledger

KEYS = {"k1": base64.b64encode(bytes(range(32))).decode()}
ENCRYPTED = {"encryption": {"keys": KEYS}}


def api_key() -> AuthConfig:
    """A key that only the user has."""
    return AuthConfig(
        auth_scheme=APIKey(**{"in": APIKeyIn.header, "name": "X-Key"}), credential_key="key_of_user"
    )


def oauth(base: str) -> AuthConfig:
    """What a user signs in for. The secret of the app never leaves it."""
    code = OAuthFlowAuthorizationCode(
        authorizationUrl=f"{base}/auth", tokenUrl=f"{base}/token", scopes={"read": "Read"}
    )
    return AuthConfig(
        auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=code)),
        raw_auth_credential=AuthCredential(
            auth_type=AuthCredentialTypes.OAUTH2,
            oauth2=OAuth2Auth(
                client_id="desk", client_secret="of the app", redirect_uri=f"{base}/back"
            ),
        ),
        credential_key="sign_in",
    )


def answer(wait: Mapping[str, Any]) -> Any:
    """What a front end sends back: the AuthConfig that it was shown, filled in."""
    if wait["kind"] != "adk_request_credential":
        return {"confirmed": True}
    asked = dict(wait["payload"])
    scheme = asked["authScheme"]["type"]
    if scheme == "apiKey":
        asked["exchangedAuthCredential"] = {"authType": "apiKey", "apiKey": "of the user"}
    else:
        given = asked["exchangedAuthCredential"]
        given["oauth2"]["authResponseUri"] = (
            f"{given['oauth2']['redirectUri']}?code=once&state={given['oauth2']['state']}"
        )
    return asked


async def a_moment() -> None:
    await asyncio.sleep(random.random() * 0.01)


# ---------------------------------------------------------------- tools


def tool(ledger: Ledger) -> LlmAgent:
    """Two calls need the key, at once and later; it is asked for once."""

    async def fetch(q: str, credential: AuthCredential) -> str:
        """Fetch."""
        ledger.add("tool", "fetch", q, credential.api_key)
        await a_moment()
        return q

    async def look(q: str) -> str:
        """Look."""
        ledger.add("tool", "look", q)
        await a_moment()
        return q

    return agent(
        ledger,
        "root",
        calls(("fetch", {"q": "a"}), ("look", {"q": "b"})),
        calls(("look", {"q": "c"})),
        calls(("fetch", {"q": "d"})),
        says("done"),
        tools=[AuthenticatedFunctionTool(func=fetch, auth_config=api_key()), look],
    )


def _at_the_site(ledger: Ledger) -> AuthConfig:
    """A sign-in, whose site is not asked. Each process is a fork of its own: what ADK draws for a
    sign-in would differ in every life."""

    def exchanged(given: AuthCredential) -> ExchangeResult:
        assert given.oauth2 is not None
        if given.oauth2.access_token:  # as ADK's own does
            return ExchangeResult(given, False)
        ledger.add("http", "exchange", given.oauth2.auth_response_uri)
        made = given.model_copy(deep=True)
        assert made.oauth2 is not None
        made.oauth2.access_token = "of the user"
        return ExchangeResult(made, True)

    async def exchange(self: Any, given: AuthCredential, scheme: Any = None) -> ExchangeResult:
        return exchanged(given)

    def exchange_sync(self: Any, given: AuthCredential, scheme: Any = None) -> ExchangeResult:
        return exchanged(given)

    exchanger: Any = OAuth2CredentialExchanger
    exchanger.exchange, exchanger._exchange_sync = exchange, exchange_sync
    authlib.oauth2.client.generate_token = lambda *_, **__: "drawn"
    return oauth("https://site.test")


def signed_in(ledger: Ledger) -> LlmAgent:
    """The first call exchanges the code, in its body; the later ones use what it gave."""
    auth = _at_the_site(ledger)

    async def fetch(q: str, credential: AuthCredential) -> str:
        """Fetch."""
        ledger.add("tool", "fetch", q, credential.oauth2.access_token if credential.oauth2 else "")
        await a_moment()
        return q

    return agent(
        ledger,
        "root",
        calls(("fetch", {"q": "a"})),
        calls(("fetch", {"q": "b"})),
        calls(("fetch", {"q": "c"})),
        says("done"),
        tools=[AuthenticatedFunctionTool(func=fetch, auth_config=auth)],
    )


def over_http(ledger: Ledger) -> LlmAgent:
    """OpenAPI: the site wants a key, which the user has."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ledger.add("http", "GET", self.path, self.headers.get("X-Key"))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    warnings.filterwarnings("ignore", "Setting per-request cookies", DeprecationWarning)
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    page = {"responses": {"200": {"description": "ok"}}, "operationId": "page", "summary": "Read"}
    spec = {
        "openapi": "3.0.0",
        "info": {"title": "t", "version": "1"},
        "servers": [{"url": f"http://127.0.0.1:{web.server_address[1]}"}],
        "paths": {"/page": {"get": page}},
    }
    tools = OpenAPIToolset(
        spec_dict=spec,
        auth_scheme=api_key().auth_scheme,
        credential_key="key_of_user",
        allow_private_network_access=True,
    )
    return agent(ledger, "root", calls(("page", {})), says("done"), tools=[tools])


# ---------------------------------------------------------------- nodes


def node(ledger: Ledger) -> Workflow:
    return _gated(ledger, api_key())


def signed_node(ledger: Ledger) -> Workflow:
    return _gated(ledger, _at_the_site(ledger))


def _gated(ledger: Ledger, auth: AuthConfig) -> Workflow:

    async def before(node_input: Any) -> str:
        ledger.add("node", "before")
        await a_moment()
        return "x"

    async def gated(ctx: Any, node_input: Any) -> str:
        credential = AuthHandler(auth).get_auth_response(ctx.state)
        assert credential is not None
        token = credential.oauth2.access_token if credential.oauth2 else credential.api_key
        ledger.add("node", "gated", token)
        await a_moment()
        return "y"

    async def after(node_input: Any) -> str:
        ledger.add("node", "after", node_input)
        await a_moment()
        return "z"

    asks = FunctionNode(func=gated, name="gated", auth_config=auth, rerun_on_resume=True)
    first = FunctionNode(func=before, name="before")
    last = FunctionNode(func=after, name="after")
    return Workflow(name="flow", edges=[(START, first), (first, asks), (asks, last)])


SHAPES: dict[str, Shape] = {
    "a tool that asks for a key": Shape(
        build=tool,
        feature="credentials asked for by tools",
        waits=(1,),
        answer=answer,
        config=ENCRYPTED,
        in_flight=3,
    ),
    "a tool that asks for a sign-in": Shape(
        build=signed_in,
        feature="credentials asked for by tools",
        waits=(1,),
        answer=answer,
        config=ENCRYPTED,
        in_flight=3,
    ),
    "OpenAPI that asks for a key": Shape(
        build=over_http,
        feature="credentials asked for by tools",
        waits=(1,),
        answer=answer,
        config=ENCRYPTED,
        in_flight=3,
    ),
    "a function node that asks for a key": Shape(
        build=node,
        feature="credentials asked for by function nodes",
        waits=(1,),
        answer=answer,
        config=ENCRYPTED,
    ),
    "a function node that asks for a sign-in": Shape(
        build=signed_node,
        feature="credentials asked for by function nodes",
        waits=(1,),
        answer=answer,
        config=ENCRYPTED,
    ),
}
