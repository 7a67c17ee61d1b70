"""Results as plain values: what JSON has no word for becomes null, or text to be read back."""

import dataclasses
import json
import math

import numpy as np
import pytest

from dvrenyi_plugin.reports.plain_json import jsonable, to_json


@dataclasses.dataclass(frozen=True)
class Pair:
    first: float
    second: object = None


def test_every_kind_of_value_becomes_plain():
    content = {
        1: (True, None, "text", np.int64(3), np.float32(0.5)),
        "array": np.array([[1.0, np.nan], [np.inf, 2.0]]),
        "nested": Pair(-math.inf, [Pair(1.0, Pair)]),
    }
    assert json.loads(to_json(content)) == {
        "1": [True, None, "text", 3, 0.5],
        "array": [[1.0, None], [None, 2.0]],
        "nested": {"first": None, "second": [{"first": 1.0, "second": str(Pair)}]},
    }


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e-300, -0.0, np.float64(0.1)])
def test_text_is_read_back_as_the_same_number(value):
    plain = jsonable({"value": [value]}, as_text=True)
    (back,) = json.loads(json.dumps(plain, allow_nan=False))["value"]
    assert float(back) == value
    assert math.isnan(float(jsonable(math.nan, as_text=True)))
