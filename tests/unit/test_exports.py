"""The public names are a contract: other people's programs use them."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
from types import ModuleType

import pytest

from tests.support.mongo import ROOT

SOURCE = ROOT / "src" / "durable_adk"


def declared_all(text: str) -> list[str] | None:
    """What a module's ``__all__`` lists, read without importing it."""
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
    return None


WITH_ALL = [
    path.relative_to(SOURCE).as_posix()
    for path in sorted(SOURCE.rglob("*.py"))
    if declared_all(path.read_text("utf-8")) is not None
]

PUBLIC = {
    "ActivityInfo",
    "App",
    "CorruptHistory",
    "DurableRunner",
    "DurableSessionService",
    "current_activity_id",
    "durable_tool",
    "LeaseLost",
    "NotStorable",
    "OutcomeUnknown",
    "ReplayMismatch",
    "expiring",
    "now",
    "random",
    "sleep",
    "step",
    "uuid4",
}

# Each method's parameters as a signature, read by Python: what is after ``*`` is keyword-only.
REQUEST = (
    "*, user_id, session_id=None, message, execution_id=None, state_delta=None, run_config=None,"
    " timeout=None"
)
RESUME = "execution_id, answers={}, *, by=None, timeout=None"
APP_METHODS = {
    "invoke": REQUEST,
    "stream": REQUEST,
    "submit": REQUEST,
    "resume": RESUME,
    "resume_stream": RESUME,
    "answer": "wait_id, value, *, by=None",
    "recover": "limit=100",
    "cancel": "execution_id, reason=''",
    "retry": "execution_id, reason=''",
    "give_up": "execution_id, reason=''",
    "open": "",
    "close": "",
    "worker": "",
    "tools": "",
}
READS = {
    "executions": "activities events get list outcome",
    "sessions": "create events get list",
    "waits": "get list",
}
APP_NAMES = {"entrypoint", "executions", "llm", "runner", "sessions", "tool", "waits"}


@pytest.mark.parametrize("where", WITH_ALL)
def test_all_is_sorted_and_lists_names_that_exist(where: str) -> None:
    dotted = where.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    name = "durable_adk" if dotted == "__init__" else f"durable_adk.{dotted}"
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(set(module.__all__))
    assert [listed for listed in module.__all__ if not hasattr(module, listed)] == []


@pytest.fixture(scope="module")
def package() -> ModuleType:
    return importlib.import_module("durable_adk")


def test_all_is_every_public_name_of_the_package(package: ModuleType) -> None:
    public = {
        name
        for name in dir(package)
        if not name.startswith("_") and not inspect.ismodule(getattr(package, name))
    }
    public -= {"annotations"}
    assert set(package.__all__) == public


def test_the_package_has_every_promised_name(package: ModuleType) -> None:
    assert set(package.__all__) >= PUBLIC


@pytest.mark.parametrize("method", sorted(APP_METHODS))
def test_app_methods_take_what_is_promised(package: ModuleType, method: str) -> None:
    promised = promised_signature(APP_METHODS[method])
    actual = inspect.signature(getattr(package.App, method)).parameters
    for name, parameter in promised.items():
        assert name in actual, f"App.{method} lacks {name!r}"
        optional = parameter.default is not parameter.empty
        assert (actual[name].default is not parameter.empty) == optional
        assert actual[name].kind in (parameter.kind, parameter.POSITIONAL_OR_KEYWORD)
        if optional and parameter.default != {}:
            assert actual[name].default == parameter.default
    added = [p for n, p in actual.items() if n not in promised and n != "self"]
    assert [str(p) for p in added if p.default is p.empty and p.kind is not p.VAR_KEYWORD] == []


def promised_signature(text: str) -> dict[str, inspect.Parameter]:
    """The parameters that ``def f(text)`` would have."""
    arguments = ast.parse(f"def f({text}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    spec = arguments.args
    kinds = [
        (spec.args, [None] * (len(spec.args) - len(spec.defaults)) + list(spec.defaults)),
        (spec.kwonlyargs, spec.kw_defaults),
    ]
    found: dict[str, inspect.Parameter] = {}
    for keyword_only, (names, defaults) in enumerate(kinds):
        for argument, default in zip(names, defaults, strict=True):
            found[argument.arg] = inspect.Parameter(
                argument.arg,
                inspect.Parameter.KEYWORD_ONLY
                if keyword_only
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if default is None else ast.literal_eval(default),
            )
    return found


def test_app_has_every_promised_name(package: ModuleType) -> None:
    app = package.App("names-only")
    assert [name for name in sorted(APP_NAMES) if not hasattr(app, name)] == []


@pytest.mark.parametrize("name", sorted(READS))
def test_help_of_app_shows_what_can_be_read(package: ModuleType, name: str) -> None:
    shown = pydoc.render_doc(package.App, renderer=pydoc.plaintext)
    assert f"\n |  {name}\n" in shown
    kind = inspect.signature(getattr(package.App, name).fget, eval_str=True).return_annotation
    lacking = [method for method in READS[name].split() if not getattr(kind, method).__doc__]
    assert lacking == []
