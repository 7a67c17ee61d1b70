"""The floor plan: rooms import only from those below them, without cycles, and no room or file
outgrows its idea.
"""

import ast
import collections
import pathlib

import dvrenyi_plugin

PACKAGE = pathlib.Path(dvrenyi_plugin.__file__).parent
# Ground floor first.
FLOORS = (
    *("_internal", "privacy", "interfaces", "critics", "bounds", "testers", "flows", "mechanisms"),
    *("generators", "data", "execution", "reports", "audits", "comparison", "binaries"),
)
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imports_of(path: pathlib.Path) -> set[str]:
    """Returns the modules of this package that a file imports, at its top or inside its
    functions.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dvrenyi_plugin"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("dvrenyi_plugin")}
    return {module_of(name) for name in found}


def module_of(name: str) -> str:
    """Returns the module that a dotted name lies in."""
    while name not in MODULES:
        name = name.rpartition(".")[0]
    return name


GRAPH = {name: imports_of(path) - {name} for name, path in MODULES.items()}


def floor_of(module: str) -> int:
    """Returns the number of a module's floor; the package itself lies below all."""
    parts = module.split(".")
    return FLOORS.index(parts[1]) if len(parts) > 1 else -1


def test_imports_only_point_down():
    upward = {
        (module, imported)
        for module, all_imported in GRAPH.items()
        for imported in all_imported
        if floor_of(module) >= 0 and floor_of(imported) > floor_of(module)
    }
    assert not upward


def test_testers_and_mechanisms_do_not_know_each_other():
    for module, all_imported in GRAPH.items():
        for one, other in (("testers", "mechanisms"), ("mechanisms", "testers")):
            if module.startswith(f"dvrenyi_plugin.{one}"):
                assert not [name for name in all_imported if f".{other}" in name], module


def test_no_module_reaches_itself():
    left = {module: set(imported) for module, imported in GRAPH.items()}
    while free := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in free:
            del left[module]
    assert not left


def test_rooms_hold_at_most_fifteen_files():
    sizes = collections.Counter(path.parent for path in MODULES.values())
    assert max(sizes.values()) <= 15, sizes.most_common(3)


def test_files_and_functions_hold_one_idea():
    too_long = {path: 400 for path in MODULES.values() if len(_lines(path)) > 400}
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                positional = [*node.args.posonlyargs, *node.args.args]
                own = [argument for argument in positional if argument.arg not in ("self", "cls")]
                if (node.end_lineno or 0) - node.lineno >= 60 or len(own) > 6:
                    too_long[path / node.name] = 60
    assert not too_long


def _lines(path: pathlib.Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
