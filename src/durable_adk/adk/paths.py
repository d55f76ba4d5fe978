"""ADK's path text (``outer@1/review@1``) to operation paths (``agent#1/review#1``).

The rule that held for every shape:

==========================  =====================================================
node run                    path of the parent's run / name#run id
node run inside a tool      path of the tool call / name#count in that call, unless the
                            run id is no number (a task's call id): then as above
agent not run as a node     path of the enclosing scope / name~count in it
tool call                   path of the agent / :m<model ordinal>.<place in its response>
private runner              below the scope that started it
==========================  =====================================================
"""

from __future__ import annotations

from durable_adk.errors import UnsupportedNode
from durable_adk.model.position import ROOT, join, node_segment


def split_leaf(node_path: str) -> tuple[str, str, str]:
    """Parent path, name and run id of a node path.

    Raises:
        UnsupportedNode: the text is no node path.
    """
    parent, _, leaf = node_path.rpartition("/")
    name, mark, run = leaf.rpartition("@")
    if not (mark and name and run):
        raise UnsupportedNode(
            node_path or "(no node path)",
            because="this is no path of the form name@run/name@run",
            instead="report it with the graph that made it",
        )
    return parent, name, run


def from_adk(node_path: str) -> str:
    """The operation path of a node run of the execution's own runner."""
    parent, name, run = split_leaf(node_path)
    if not parent:
        return node_segment(ROOT, run)
    return join(from_adk(parent), node_segment(name, run))


def root_path(run: str = "1") -> str:
    return node_segment(ROOT, run)
