"""A refund desk that is killed in the middle of a refund and loses nothing.

Two agents work side by side on a complaint: one wants to pay a refund and needs a person to
confirm it, the other needs to know what the customer would like. Both questions are one
frontier. After the answers the process that runs the refund is killed with SIGKILL when the
money has moved and nobody has been told; another process goes on.

    python -m durable_adk.examples.refund_desk [--interactive]

``MONGODB_URI`` names the server (the database is ``durable_adk_demo``); with ``GOOGLE_API_KEY``
Gemini plays the agents, without it a script does. The ledger that proves the effects is a
collection of its own, written by the tools and by nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Mapping
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, JoinNode, Workflow
from pymongo import AsyncMongoClient, MongoClient

from durable_adk import App, Outcome, current_activity_id
from durable_adk.testing import ScriptedModel, calls, says

DATABASE = "durable_adk_demo"
ORDER, CENTS = "A-1007", 4200
LEASE = "5s"
QUESTION = {
    "adk_request_confirmation": "may this run?",
    "adk_request_input": "an answer is wanted for",
}


# ---------------------------------------------------------------- the ledger and the tools


def ledger() -> Any:
    """The world outside: what really happened, one document per effect."""
    client: MongoClient[dict[str, Any]] = MongoClient(os.environ["MONGODB_URI"])
    return client[DATABASE]["ledger"]


def enter(effect: str) -> None:
    """Write an effect once per idempotency key, and count how often its body was entered."""
    key = current_activity_id()
    case = os.environ.get("REFUND_DESK_CASE", "")
    ledger().update_one(
        {"_id": key},
        {"$setOnInsert": {"case": case, "effect": effect}, "$inc": {"entered": 1}},
        upsert=True,
    )


def look_up_order(order_id: str) -> dict[str, Any]:
    """Look up an order: what was bought and paid."""
    enter(f"look up order {order_id}")
    return {"order_id": order_id, "item": "espresso machine", "paid_cents": CENTS}


async def issue_refund(order_id: str, cents: int) -> dict[str, Any]:
    """Pay money back for an order."""
    enter(f"refund {cents / 100:.2f} for order {order_id}")
    await asyncio.sleep(float(os.environ.get("REFUND_DESK_BANK_SECONDS", "0")))
    return {"refunded_cents": cents}


def ask_customer(question: str) -> None:
    """Ask the customer a question; the answer comes later."""


def send_gift(gift: str) -> dict[str, Any]:
    """Send the customer a gift of their choice."""
    enter(f"send a gift: {gift}")
    return {"sent": gift}


# ---------------------------------------------------------------- the agents


def refund_script(request: Any, turn: int) -> Any:
    if turn == 0:
        return calls(("look_up_order", {"order_id": ORDER}))
    if turn == 1:
        return calls(("issue_refund", {"order_id": ORDER, "cents": CENTS}))
    paid = "refunded_cents" in last_response(request)
    return says("The refund is on its way." if paid else "The refund was declined.")


def care_script(request: Any, turn: int) -> Any:
    if turn == 0:
        return calls(("ask_customer", {"question": "What may we send you as an apology?"}))
    if turn == 1:
        gift = last_response(request).get("result", "a voucher")
        return calls(("send_gift", {"gift": gift}))
    return says("A gift is on its way.")


def last_response(request: Any) -> dict[str, Any]:
    """What the newest tool call of the conversation returned."""
    parts = [part for content in request.contents for part in content.parts or ()]
    responses = [p.function_response.response for p in parts if p.function_response]
    return responses[-1] or {}


def model(script: Any) -> Any:
    if os.environ.get("GOOGLE_API_KEY"):
        return "gemini-2.5-flash"
    return ScriptedModel(script=script)


def summary(node_input: Mapping[str, Any]) -> str:
    """The end: both agents are done."""
    return " ".join(str(node_input[name]) for name in sorted(node_input))


def desk() -> Workflow:
    refunds = LlmAgent(
        name="refunds",
        model=model(refund_script),
        instruction=f"Look up order {ORDER}, then refund what was paid with issue_refund.",
        tools=[look_up_order, FunctionTool(issue_refund, require_confirmation=True)],
    )
    care = LlmAgent(
        name="care",
        model=model(care_script),
        instruction="Ask the customer with ask_customer what gift they want, then send_gift it.",
        tools=[LongRunningFunctionTool(ask_customer), send_gift],
    )
    both = JoinNode(name="both")
    return Workflow(
        name="desk", edges=[(START, (refunds, care)), ((refunds, care), both), (both, summary)]
    )


def app() -> App:
    config = {"features": {"durable_workflow": True}, "lease": {"ttl": LEASE}}
    return App(
        "refund-desk",
        root_agent=desk(),
        config=config,
        mongodb=os.environ["MONGODB_URI"],
        database=DATABASE,
    )


# ---------------------------------------------------------------- one process each


async def begin(case: str) -> None:
    async with app() as desk_app:
        out = await desk_app.invoke(
            user_id="ada", session_id=case, execution_id=case, message="My machine is broken!"
        )
        print(f"      process {os.getpid()} says: {out.status}, {len(out.waits)} open waits")


async def answer(case: str, answers: dict[str, Any]) -> None:
    async with app() as desk_app:
        await desk_app.resume(case, answers, by="demo")


async def finish(case: str) -> None:
    """Recover what a dead process left; its lease must run out first."""
    async with app() as desk_app:
        while True:
            await desk_app.recover()
            out = await desk_app.executions.get(case)
            if out.status not in ("running", "queued"):
                return
            await asyncio.sleep(0.2)


async def outcome(case: str) -> Outcome:
    async with app() as desk_app:
        return await desk_app.resume(case)


# ---------------------------------------------------------------- the show


def say(text: str) -> None:
    print(text, flush=True)


async def child(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "durable_adk.examples.refund_desk",
        *arguments,
        env={**os.environ, **environment},
    )


async def waits_of(case: str) -> tuple[Any, ...]:
    async with app() as desk_app:
        return (await desk_app.waits.list(session_id=case)).items


def answers_for(waits: tuple[Any, ...], *, interactive: bool) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for wait in waits:
        if wait.kind == "adk_request_confirmation":
            answers[wait.id] = {"confirmed": agrees() if interactive else True}
        else:
            text = input("      your gift? ") if interactive else "a coffee grinder"
            answers[wait.id] = text.strip() or "a coffee grinder"
    return answers


def agrees() -> bool:
    while True:
        text = input("      confirm the refund? [y/n] ").strip().lower()
        if text in ("y", "yes", "n", "no"):
            return text.startswith("y")


async def wait_for_refund(case: str, process: asyncio.subprocess.Process) -> bool:
    """True when the money has moved; False when the process ended without a refund."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGODB_URI"])
    async with client:
        rows = client[DATABASE]["ledger"]
        while process.returncode is None:
            if await rows.find_one({"case": case, "effect": {"$regex": "^refund"}}):
                return True
            await asyncio.sleep(0.05)
    return False


async def show(*, interactive: bool) -> int:
    case = f"case-{uuid.uuid4().hex[:8]}"
    say(f"[1/6] A process starts the refund desk for {case}: two agents in parallel.")
    await (await child("begin", case, REFUND_DESK_CASE=case)).wait()
    waits = await waits_of(case)
    say("[2/6] That process is gone. What it waits for is one frontier in MongoDB:")
    for wait in waits:
        about = f"{wait.tool_call.name}({wait.tool_call.args})" if wait.tool_call else wait.message
        say(f"      at {wait.operation_path}: {QUESTION[wait.kind]} {about}")
    answers = answers_for(waits, interactive=interactive)
    shown = ", ".join(json.dumps(answer) for answer in answers.values())
    say(f"[3/6] Both are answered at once ({shown}), and a second process goes on.")
    second = await child(
        "answer", case, json.dumps(answers), REFUND_DESK_CASE=case, REFUND_DESK_BANK_SECONDS="30"
    )
    if await wait_for_refund(case, second):
        await asyncio.sleep(0.5)  # let the other agent come to its end
        second.send_signal(signal.SIGKILL)
        await second.wait()
        killed = time.monotonic()
        say(
            f"[4/6] Process {second.pid} was killed (SIGKILL) inside issue_refund: the money has"
            " moved, nothing is recorded."
        )
        say(f"[5/6] A third process waits for the dead owner's lease ({LEASE}) and goes on.")
        await (await child("finish", case, REFUND_DESK_CASE=case)).wait()
        say(f"      finished {time.monotonic() - killed:.1f} s after the kill")
    else:
        say("[4/6] The refund was declined, so there is nothing to kill.")
        say("[5/6] The second process has finished the case.")
    out = await outcome(case)
    say(f"[6/6] The execution is {out.status}: {out.output}")
    return print_ledger(case)


def print_ledger(case: str) -> int:
    rows = sorted(ledger().find({"case": case}), key=lambda row: str(row["effect"]))
    say("The ledger of effects (written by the tools only):")
    for row in rows:
        entered = row["entered"]
        again = f"  ({entered} entries under one idempotency key: 1 effect)" if entered > 1 else ""
        say(f"  once: {row['effect']}{again}")
    effects = [row["effect"] for row in rows]
    return 0 if len(effects) == len(set(effects)) and effects else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="*", help="internal: one process of the show")
    parser.add_argument("--interactive", action="store_true", help="take the answers from you")
    arguments = parser.parse_args()
    if "MONGODB_URI" not in os.environ:
        parser.error("MONGODB_URI is not set; it names the server, as scripts/demo.sh does")
    logging.getLogger("google_adk").setLevel(logging.ERROR)
    match arguments.part:
        case ["begin", case]:
            asyncio.run(begin(case))
        case ["answer", case, text]:
            asyncio.run(answer(case, json.loads(text)))
        case ["finish", case]:
            asyncio.run(finish(case))
        case []:
            return asyncio.run(show(interactive=arguments.interactive))
        case other:
            parser.error(f"unknown part {other}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
