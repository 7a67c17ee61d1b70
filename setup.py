"""Packaging. Ranges are wide here; `requirements/` holds the pins that were tested together."""

import pathlib
import re

import setuptools

HERE = pathlib.Path(__file__).parent
VERSION = re.search(
    r'^__version__ = "([^"]+)"', (HERE / "dvrenyi_plugin" / "__init__.py").read_text(), re.MULTILINE
).group(1)


def _long_description() -> str:
    """Returns the README for a page where the files beside it are not: no pictures, paths in place
    of links to them.
    """
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[[^]]*\]\((?!https?:)[^)]*\)\n*", "", text)
    return re.sub(
        r"\[([^]]*)\]\((?!https?:|#)([^)]*)\)",
        lambda link: link[2] if link[1] in (link[2], "docs") else f"{link[1]} ({link[2]})",
        text,
    )


VISION = ["mlxtend>=0.23", "scikit-learn>=1.3"]

setuptools.setup(
    name="dvrenyi_plugin",
    version=VERSION,
    description="Rényi differential privacy audits for DP-Auditorium: testers and mechanisms",
    long_description=_long_description(),
    long_description_content_type="text/markdown",
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=setuptools.find_packages(include=["dvrenyi_plugin", "dvrenyi_plugin.*"]),
    package_data={"": ["*.pyi", "py.typed"], "dvrenyi_plugin.reports": ["templates/*"]},
    install_requires=[
        "absl-py>=1.4",
        "dp-accounting>=0.4.3",
        "jinja2>=3.1",
        "joblib>=1.4",
        "matplotlib>=3.7",
        "numpy>=1.26",
        "opacus>=1.5",
        "pyyaml>=6.0",
        "scipy>=1.11",
        "torch>=2.3",
        "tqdm>=4.65",
    ],
    extras_require={
        "tensorflow": ["tensorflow==2.15.1", "tensorflow-privacy==0.9.0"],
        "vision": VISION,
        "parquet": ["pyarrow>=14"],
        "torchvision": ["torchvision>=0.18"],
        "distributed": ["dask[distributed]>=2024.1", "ray>=2.9"],
        "dev": [
            "hypothesis>=6.90",
            "ipykernel>=6.29",
            "mypy>=1.8",
            "nbclient>=0.10",
            "nbformat>=5.10",
            "pytest>=8.0",
            "pytest-timeout>=2.2",
            "pytest-xdist>=3.5",
            "ruff>=0.4",
            *VISION,
        ],
    },
    entry_points={
        "console_scripts": [
            "dvrenyi-audit-dpsgd = dvrenyi_plugin.binaries.audit_dpsgd:run",
            "dvrenyi-audit-scores = dvrenyi_plugin.binaries.audit_scores:run",
            "dvrenyi-audit-training = dvrenyi_plugin.binaries.audit_training:run",
            "dvrenyi-compare-testers = dvrenyi_plugin.binaries.compare_testers:run",
            "dvrenyi-audit-shk = dvrenyi_plugin.binaries.audit_shk:run",
            "dvrenyi-plan-audit = dvrenyi_plugin.binaries.plan_audit:run",
        ],
        "pytest11": ["dvrenyi_plugin = dvrenyi_plugin.audits.pytest_plugin"],
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering",
        "Topic :: Security",
    ],
)
