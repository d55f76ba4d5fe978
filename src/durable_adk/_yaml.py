"""YAML, read strictly: one document, plain values, no key twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from durable_adk.errors import ConfigError


class _StrictLoader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        "while reading a mapping",
                        node.start_mark,
                        f"the key {key.value!r} is there twice",
                        key.start_mark,
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def parse(text: str, *, source: str) -> object:
    """The one document in ``text``.

    Raises:
        ConfigError: naming ``source``, line and column.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(
            source, f"malformed YAML{where}: {error.problem or error.context}", "Correct it."
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError(source, f"malformed YAML: {error}", "Correct it.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(source, f"a value cannot be read: {error}", "Correct it.") from None
