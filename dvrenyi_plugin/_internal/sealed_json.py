"""JSON that carries its own digest, so that a file that was damaged or edited is not used
silently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_DIGEST = "digest"


def seal(content: Mapping[str, Any], context: str = "") -> dict[str, Any]:
    """Returns the content with the SHA-256 of its canonical text under `digest`.

    Args:
      content: plain values, all finite.
      context: what the content belongs to; it must be given again to read it.

    Raises:
      ValueError: a number is not finite.
    """
    return {**content, _DIGEST: _digest(content, context)}


def unseal(text: str, context: str = "") -> dict[str, Any]:
    """Returns the content of JSON that was sealed.

    Raises:
      ValueError: it is no such JSON, or its digest is that of something else.
    """
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"must be an object, got {text[:40]!r}")
    stored = content.pop(_DIGEST, None)
    if stored != _digest(content, context):
        raise ValueError("it does not have the digest it was written with")
    return content


def _digest(content: Mapping[str, Any], context: str) -> str:
    canonical = json.dumps([context, dict(content)], sort_keys=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
