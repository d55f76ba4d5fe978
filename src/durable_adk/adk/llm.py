"""``app.llm(name)``: a model by its name, through ADK's registry."""

from __future__ import annotations

from google.adk.models import BaseLlm, LLMRegistry

from durable_adk.errors import ConfigError


def make_llm(name: str) -> BaseLlm:
    """The model that ADK knows under this name.

    Raises:
        ConfigError: ADK knows none.
    """
    try:
        return LLMRegistry.new_llm(name)
    except ValueError as error:
        raise ConfigError(f"app.llm({name!r})", str(error)) from error
