"""What is in the source distribution and in the metadata, built in a copy of the checkout."""

import email
import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("benchmarks", "docs", "dvrenyi_plugin", "requirements", "tests")


@pytest.fixture(scope="module")
def distribution(tmp_path_factory):
    """Returns the names of the files in the source distribution, and its metadata."""
    if not (ROOT / "setup.py").exists():
        pytest.skip("needs a checkout")
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path_factory.mktemp("build") / "copy"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.name in FOLDERS:
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file():
            shutil.copy(path, copy)
    code = "from setuptools import build_meta; print(build_meta.build_sdist('.'))"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, capture_output=True)
    (archive,) = copy.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
        top = archive.name.removesuffix(".tar.gz")
        metadata = file.extractfile(f"{top}/PKG-INFO").read().decode()
    return names, email.message_from_string(metadata)


def test_f20_the_source_distribution_holds_tests_docs_and_all_that_they_need(distribution):
    names, _ = distribution
    wanted = {
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    wanted |= {"LICENSE", "MANIFEST.in", "Makefile", "README.md", "CHANGELOG.md", "BUILD"}
    assert wanted <= names
    assert not any("__pycache__" in name or name.startswith(".") for name in names)


def test_f20_metadata_states_the_licence_and_no_dead_links(distribution):
    _, metadata = distribution
    assert metadata["License-Expression"] == "Apache-2.0"
    assert not any("License" in line for line in metadata.get_all("Classifier"))
    description = metadata.get_payload()
    assert "![" not in description
    assert "](docs" not in description
    assert "docs/bounds.md" in description and "](https://" in description


def test_f20_no_text_names_the_package_as_if_it_were_on_an_index():
    wrong = "pip install " + "dvrenyi_plugin"
    for pattern in ("dvrenyi_plugin/**/*.py", "docs/**/*.md", "tests/**/*.py", "README.md"):
        for path in ROOT.glob(pattern):
            assert wrong not in path.read_text(encoding="utf-8"), path
