"""Shapes of one agent and of agents that hand over to each other."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import Tools, agent, by_own_turns
from tests.shapes.shape import Shape
from tests.support.lives import Ledger


def move(name: str) -> Any:
    return calls(("transfer_to_agent", {"agent_name": name}))


def plain(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    return agent(
        ledger,
        "root",
        calls(("look", {"q": "a"})),
        calls(("pay", {"amount": 1})),
        calls(("slow", {"q": "b"})),
        says("done"),
        tools=[tools.look, tools.pay, tools.slow],
    )


def confirmed(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    return agent(
        ledger,
        "root",
        calls(("slow", {"q": "a"})),
        calls(("pay", {"amount": 1})),
        calls(("look", {"q": "b"})),
        says("done"),
        tools=[tools.look, tools.slow, tools.confirmed_pay],
    )


def parallel(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    asked = [("slow", {"q": letter}) for letter in "abcde"]
    return agent(ledger, "root", calls(*asked), says("done"), tools=[tools.slow])


def two_confirmed(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    return agent(
        ledger,
        "root",
        calls(("pay", {"amount": 1}), ("slow", {"q": "a"}), ("pay", {"amount": 2})),
        says("done"),
        tools=[tools.slow, tools.confirmed_pay],
    )


def transfer(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    helper = agent(
        ledger,
        "helper",
        calls(("slow", {"q": "b"})),
        says("helped"),
        description="helper",
        tools=[tools.slow],
    )
    return agent(ledger, "root", move("helper"), sub_agents=[helper])


def transfer_confirmed(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    helper = agent(
        ledger,
        "helper",
        calls(("pay", {"amount": 1})),
        calls(("slow", {"q": "b"})),
        says("helped"),
        description="helper",
        tools=[tools.slow, tools.confirmed_pay],
    )
    return agent(ledger, "root", move("helper"), sub_agents=[helper])


def there_and_back(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    helper = by_own_turns(
        agent(ledger, "helper", description="helper", tools=[tools.confirmed_pay]),
        calls(("pay", {"amount": 1})),
        move("root"),
        calls(("pay", {"amount": 2})),
        move("root"),
    )
    return by_own_turns(
        agent(ledger, "root", sub_agents=[helper]), move("helper"), move("helper"), says("done")
    )


def peers(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    a = by_own_turns(
        agent(ledger, "a", description="a", tools=[tools.look]),
        move("b"),
        calls(("look", {"q": "a2"})),
        says("a done"),
    )
    b = by_own_turns(
        agent(ledger, "b", description="b", tools=[tools.confirmed_pay]),
        calls(("pay", {"amount": 2})),
        move("a"),
    )
    return by_own_turns(agent(ledger, "root", sub_agents=[a, b]), move("a"), says("done"))


def deep(ledger: Ledger) -> LlmAgent:
    """A hand-over to an agent below the one that was handed over to."""
    tools = Tools(ledger)
    lowest = by_own_turns(
        agent(ledger, "lowest", description="lowest", tools=[tools.confirmed_pay]),
        calls(("pay", {"amount": 3})),
        says("lowest done"),
    )
    middle = agent(ledger, "middle", move("lowest"), description="middle", sub_agents=[lowest])
    return agent(ledger, "root", move("middle"), sub_agents=[middle])


def two_turns(ledger: Ledger) -> LlmAgent:
    """The second message goes to the agent that answered last."""
    tools = Tools(ledger)
    helper = by_own_turns(
        agent(ledger, "helper", description="helper", tools=[tools.confirmed_pay]),
        calls(("pay", {"amount": 1})),
        says("first done"),
        calls(("pay", {"amount": 2})),
        says("second done"),
    )
    return by_own_turns(agent(ledger, "root", sub_agents=[helper]), move("helper"))


def asks_itself(ledger: Ledger) -> LlmAgent:
    """A tool that asks for its confirmation, with a payload to fill in."""

    def book(days: int, tool_context: Any) -> dict[str, Any]:
        """Book days off."""
        answer = tool_context.tool_confirmation
        if answer is None:
            tool_context.request_confirmation(hint="how many?", payload={"days": 0})
            return {"status": "waits"}
        ledger.add("tool", "book", days, answer.payload["days"])
        return {"booked": answer.payload}

    return agent(ledger, "root", calls(("book", {"days": 9})), says("done"), tools=[book])


def later_twice(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    return agent(
        ledger,
        "root",
        calls(("later", {"q": "1"})),
        calls(("later", {"q": "2"}), ("slow", {"q": "beside"})),
        says("done"),
        tools=[tools.later, tools.slow],
    )


def approve_three_days(wait: Any) -> Any:
    return {"confirmed": True, "payload": {"days": 3}}


SHAPES = {
    "agent with tools": Shape(build=plain, feature="`LlmAgent` with tools, one after the other"),
    "agent with a confirmed tool": Shape(
        build=confirmed, feature="`require_confirmation`", waits=(1,)
    ),
    "parallel tools": Shape(build=parallel, feature="tools in parallel", in_flight=5),
    "two confirmations in one turn": Shape(
        build=two_confirmed, feature="several confirmations in one turn", waits=(2,), in_flight=3
    ),
    "transfer": Shape(build=transfer, feature="transfers"),
    "transfer to an agent that asks": Shape(
        build=transfer_confirmed, feature="transfers", waits=(1,)
    ),
    "transfer there and back, asking twice": Shape(
        build=there_and_back,
        feature="transfers, back and forth",
        waits=(1, 1),
        stock="the last hand-over is lost: its path starts again at @1",
    ),
    "transfers between peers": Shape(build=peers, feature="transfers, back and forth", waits=(1,)),
    "transfer two levels down": Shape(build=deep, feature="transfers", waits=(1,)),
    "two messages to the agent that took over": Shape(
        build=two_turns,
        feature="many turns in one session",
        waits=(1, 1),
        messages=("one", "two"),
        repeats={("model", "helper", 1): 2},
    ),
    "a tool that asks itself": Shape(
        build=asks_itself,
        feature="`tool_context.request_confirmation`, with a payload",
        waits=(1,),
        answer=approve_three_days,
        repeats={("model", "root", 1): 2},  # ADK calls the model once before the answer
    ),
    "long-running tools": Shape(
        build=later_twice,
        feature="`LongRunningFunctionTool`",
        waits=(1, 1),
        in_flight=3,
        repeats={("model", "root", 2): 2},  # before the second answer, and after it
    ),
}
