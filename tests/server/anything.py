"""Bodies of every shape, with names and words that a face knows among them."""

from __future__ import annotations

import json
from collections.abc import Collection

from hypothesis import strategies as st


def any_body(names: Collection[str], words: Collection[str]) -> st.SearchStrategy[bytes]:
    """Mostly objects, sometimes other JSON, sometimes any bytes."""
    word = st.sampled_from(sorted(words))
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | word | st.text(max_size=8)
    keys = st.sampled_from(sorted(names))
    anything = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=12,
    )
    objects = st.dictionaries(keys, anything, max_size=5).map(lambda value: json.dumps(value).encode())
    return objects | objects | anything.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40)
