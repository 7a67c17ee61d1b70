"""Runs the test files named on the command line: the main module of Bazel's test targets."""

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))
