"""What the packages offer: to `import *`, `dir`, `hasattr` and type checkers, whatever is
installed.
"""

import importlib
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import dvrenyi_plugin

PACKAGES = ("audits", "critics", "mechanisms", "testers")
# What only extras install.
OPTIONAL = (
    "dask",
    "distributed",
    "mlxtend",
    "ray",
    "sklearn",
    "tensorflow",
    "tensorflow_privacy",
    "torchvision",
)


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_f10_every_name_is_imported_without_any_extra():
    lines = [f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL!r}))"]
    for package in PACKAGES:
        lines += [
            "names = {}",
            f"exec('from dvrenyi_plugin.{package} import *', names)",
            f"import dvrenyi_plugin.{package} as package",
            "assert set(package.__all__) <= set(names), package",
            "assert all(hasattr(package, name) for name in package.__all__), package",
            "assert all(getattr(names[n], '__name__', n) == n for n in package.__all__)",
            "print(len(package.__all__))",
        ]
    counts = [int(line) for line in run_python("\n".join(lines)).split()]
    assert min(counts) >= 6


@pytest.mark.parametrize("package", PACKAGES)
def test_f10_names_are_listed_and_unknown_ones_are_not_there(package):
    module = importlib.import_module(f"dvrenyi_plugin.{package}")
    assert set(module.__all__) <= set(dir(module))
    assert "__doc__" in dir(module)
    assert not hasattr(module, "Nonesuch")
    with pytest.raises(AttributeError, match=f"{package}' has no attribute 'Nonesuch'"):
        _ = module.Nonesuch


def test_f10_the_package_lists_its_rooms_and_loads_them_when_asked():
    output = run_python(
        "import sys, dvrenyi_plugin; print(*dir(dvrenyi_plugin));"
        "heavy = {'torch', 'opacus', 'tensorflow', 'matplotlib', 'scipy', 'numpy'};"
        "assert not heavy & set(sys.modules);"
        "assert dvrenyi_plugin.testers.SequentialRenyiPropertyTester;"
        "assert dvrenyi_plugin.interfaces.PureDp"
    )
    assert {"audits", "critics", "interfaces", "mechanisms", "testers"} <= set(output.split())


def test_f10_type_checkers_know_every_name_and_refuse_misspelt_ones(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")
    # The packages' own modules are not followed: torch behind them would take mypy a minute.
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\nfollow_imports = skip\ndisallow_any_unimported = false\n"
        + "".join(
            f"[mypy-dvrenyi_plugin{dotted}]\nfollow_imports = normal\n"
            for dotted in ("", *(f".{package}" for package in PACKAGES))
        )
    )
    lines = []
    for package in PACKAGES:
        module = importlib.import_module(f"dvrenyi_plugin.{package}")
        lines += [f"from dvrenyi_plugin.{package} import {name}" for name in module.__all__]
    lines += [f"from dvrenyi_plugin.{package} import Nonesuch{package}" for package in PACKAGES]
    (tmp_path / "user.py").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "user.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(pathlib.Path(dvrenyi_plugin.__file__).parents[1])},
        timeout=120,
    )
    complaints = [line for line in done.stdout.splitlines() if "error:" in line]
    assert len(complaints) == len(PACKAGES), done.stdout + done.stderr
    for package, complaint in zip(PACKAGES, complaints, strict=True):
        assert f'has no attribute "Nonesuch{package}"' in complaint
