"""Architecture that is only described decays; these fail on the line that breaks it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "durable_adk"
PACKAGE = "durable_adk"
PATHS = sorted(ROOT.rglob("*.py"))
MODULES = [path.relative_to(ROOT).as_posix() for path in PATHS]

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "config": {"errors", "_config_keys", "_yaml"},
    "_config_keys": {"errors"},
    "_yaml": {"errors"},
    "model": {"errors"},
    "engine": {"errors", "model"},
    "store": {"errors", "model"},
    "_expiries": {"errors", "_config_keys", "model"},
    "adk": {"errors", "_expiries", "model", "engine"},
    "flow": {"errors", "model", "engine", "adk"},
    "app": {"errors", "config", "_expiries", "model", "engine", "store", "adk", "flow"},
    "testing": {"errors", "config", "model", "engine", "store", "adk", "flow", "app"},
    "cli": {"errors", "config", "app"},
    "server": {"errors", "config", "app"},
    "__init__": {"errors", "config", "model", "adk", "flow", "app"},
    # User code: the package itself and what it publishes for tests.
    "examples": {"testing"},
}
ONLY_IN = {
    "google": ("adk/", "flow/", "examples/"),
    "pymongo": ("store/", "examples/"),
    "bson": ("store/", "examples/"),
    "cryptography": ("store/",),
    "gridfs": ("store/",),
    "motor": ("store/",),
    "mongomock": ("store/",),
    "mongomock_motor": ("store/",),
    "fastapi": ("server/",),
    "starlette": ("server/",),
    "uvicorn": ("server/", "cli/"),
    "click": ("cli/",),
}
# What ``from durable_adk import App`` must not load, so that functions import it.
LOADED_LATE = {
    "cryptography",
    "jsonschema",
    "mongomock",
    "mongomock_motor",
    "motor",
    "referencing",
    "yaml",
}
# ADK's private names live behind one seam, each with a check and a contract test.
PRIVATE_ADK_IN = ("adk/_seam.py", "adk/_seam_telemetry.py")


@dataclass(frozen=True)
class Import:
    """One imported name: ``from a.b import c`` is module ``a.b`` and name ``c``."""

    module: str
    name: str
    line: int
    in_function: bool
    for_types: bool  # or loaded on purpose when it is first needed: no part of a cycle

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"line {self.line}: {self.module}{' ' + self.name if self.name else ''}"


def imports_of(path: Path) -> Iterator[Import]:
    yield from _imports(ast.parse(path.read_text("utf-8")), path)


def _imports(
    node: ast.AST, path: Path, *, in_function: bool = False, for_types: bool = False
) -> Iterator[Import]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield Import(alias.name, "", node.lineno, in_function, for_types)
        case ast.ImportFrom(module=module, names=names, level=level):
            base = module or ""
            if level:
                parents = [PACKAGE, *path.relative_to(ROOT).parts[:-1]]
                base = ".".join([*parents[: len(parents) - level + 1], *([base] if base else [])])
            for alias in names:
                yield Import(base, alias.name, node.lineno, in_function, for_types)
        case ast.Call(
            func=ast.Name(id="import_module"), args=[ast.Constant(value=str(module)), *_]
        ):
            # Loading late on purpose: allowed in a function, and still bound to the layers.
            yield Import(module, "", node.lineno, in_function=False, for_types=True)
        case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
            for_types = True
    inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, path, in_function=inside, for_types=for_types)


def layer_of(where: str) -> str:
    return where.split("/", 1)[0].removesuffix(".py")


def module_name(where: str) -> str:
    dotted = where.removesuffix(".py").replace("/", ".")
    return f"{PACKAGE}.{dotted}".removesuffix(".__init__")


def own_target(imported: Import) -> str:
    """The module of ours that an import means; ``from durable_adk.model import wait`` names two."""
    submodule = f"{imported.module}.{imported.name}"
    return submodule if submodule in NAMES else imported.module


NAMES = {module_name(where) for where in MODULES}


@pytest.fixture(params=MODULES)
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_module_belongs_to_a_known_layer(where: str) -> None:
    assert layer_of(where) in MAY_IMPORT, f"{where}: give its layer a line in MAY_IMPORT"


def test_module_imports_only_what_its_layer_may(where: str) -> None:
    layer = layer_of(where)
    wrong = []
    for imported in imports_of(ROOT / where):
        if imported.top != PACKAGE:
            continue
        target = own_target(imported).split(".")
        if len(target) == 1:
            # The package itself: its public names are for users.
            if layer != "examples":
                wrong.append(str(imported))
        elif target[1] not in MAY_IMPORT[layer] | {layer}:
            wrong.append(str(imported))
    assert not wrong, f"{where} ({layer}) imports {'; '.join(wrong)}"


def test_foreign_packages_are_imported_only_at_their_seam(where: str) -> None:
    wrong = [
        str(imported)
        for imported in imports_of(ROOT / where)
        if imported.top in ONLY_IN and not where.startswith(ONLY_IN[imported.top])
    ]
    assert not wrong, f"{where} imports {'; '.join(wrong)}"


def brings_late_packages(module: str) -> bool:
    """Whether a module of ours imports at its top what must be loaded late, so it must be too."""
    path = ROOT.parent / Path(*module.split(".")).with_suffix(".py")
    return path.is_file() and any(
        imported.top in LOADED_LATE and not imported.in_function for imported in imports_of(path)
    )


def test_functions_import_only_what_must_be_loaded_late(where: str) -> None:
    wrong = [
        str(imported)
        for imported in imports_of(ROOT / where)
        if imported.in_function
        and imported.top not in LOADED_LATE
        and not brings_late_packages(own_target(imported))
    ]
    assert not wrong, f"{where}: move to the top of the module: {'; '.join(wrong)}"


def _is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def private_adk_names(path: Path) -> list[str]:
    """Private modules and names imported from google, and private attributes of what was."""
    foreign = [imported for imported in imports_of(path) if imported.top == "google"]
    found = [str(i) for i in foreign if _is_private(i.module) or _is_private(i.name)]
    bound = {i.name or i.module.partition(".")[0] for i in foreign}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.Attribute) and _is_private(node.attr)):
            continue
        base = node.value
        while isinstance(base, ast.Attribute):
            base = base.value
        if isinstance(base, ast.Name) and base.id in bound:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def test_private_adk_names_stay_behind_the_seam(where: str) -> None:
    if not where.startswith(PRIVATE_ADK_IN):
        assert private_adk_names(ROOT / where) == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Names imported for types alone are not followed: nothing happens at run time."""
    graph = {
        module_name(where): {
            own_target(imported)
            for imported in imports_of(ROOT / where)
            if imported.top == PACKAGE
            and not imported.for_types
            and own_target(imported) != module_name(where)
        }
        for where in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_the_rules_see_each_way_to_break_them(tmp_path: Path) -> None:
    """The rules are worth what they catch."""
    module = tmp_path / "module.py"
    module.write_text(
        "from google.adk.flows import _private\n"
        "from google.adk._hidden import name\n"
        "from google.adk import runners\n"
        "runners.Runner._secret()\n"
        "runners.__doc__\n"
        "def f():\n    import pymongo.errors\n"
    )
    assert len(private_adk_names(module)) == 3
    late = [i for i in imports_of(module) if i.in_function]
    assert [(i.top, i.module) for i in late] == [("pymongo", "pymongo.errors")]
