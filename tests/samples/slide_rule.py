"""Code execution: the model writes code, an executor of one's own runs it, the model reads on."""

from __future__ import annotations

import ast
import time
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.artifacts.file_artifact_service import FileArtifactService
from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult

from durable_adk.testing import says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Sums(BaseCodeExecutor):
    """Runs code that is a list of numbers: prints their sum."""

    ledger: Any

    def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        numbers = ast.literal_eval(code_execution_input.code.strip())
        self.ledger.add("code", *numbers)
        time.sleep(0.002)
        return CodeExecutionResult(stdout=str(sum(numbers)))


def build(ledger: Ledger) -> LlmAgent:
    return LlmAgent(
        name="reckoner",
        model=scripted(
            ledger,
            "reckoner",
            says("```python\n[12, 30]\n```"),
            says("```python\n[42, 8]\n```"),
            says("The sum is 50."),
        ),
        code_executor=Sums(ledger=ledger),
    )


SAMPLE = Sample(
    build=build,
    services=lambda ledger: {"artifact_service": FileArtifactService(f"{ledger.path}.artifacts")},
    messages=("12 + 30 + 8",),
    rows={("model", "reckoner"): 3, ("code", 12, 30): 1, ("code", 42, 8): 1},
    last="The sum is 50.",
)
