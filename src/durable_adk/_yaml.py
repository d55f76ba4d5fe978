"""YAML, read strictly: one document, plain values, no key twice."""

from __future__ import annotations

from typing import Any

from durable_adk.errors import ConfigError


def parse(text: str, *, source: str) -> object:
    """The one document in ``text``.

    Raises:
        ConfigError: naming ``source``, line and column.
    """
    # Imported here: only a program with a file needs it, and importing the package stays cheap.
    import yaml

    try:
        _refuse_equal_keys(yaml.compose(text, Loader=yaml.SafeLoader))
        return yaml.safe_load(text)
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


def _refuse_equal_keys(root: Any) -> None:
    """PyYAML keeps the last of two equal keys and says nothing."""
    import yaml

    todo, seen_nodes = [root], set()
    while todo:
        node = todo.pop()
        if id(node) in seen_nodes or not isinstance(node, yaml.CollectionNode):
            continue
        seen_nodes.add(id(node))  # an alias is the node that it names
        if isinstance(node, yaml.SequenceNode):
            todo.extend(node.value)
            continue
        seen: set[str] = set()
        for key, value in node.value:
            todo.append(value)
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
