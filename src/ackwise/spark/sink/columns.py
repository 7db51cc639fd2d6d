"""What a sink asks of the columns it is given. A mistake is found before a row is written."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import DataType, StructType

from ackwise.core.errors import BadInput

Kinds = tuple[DataType, ...]


def checked(schema: StructType, needed: Mapping[str, Kinds], optional: Mapping[str, Kinds], where: str) -> list[str]:
    """The names of the columns that are there."""
    for field in schema.fields:
        kinds = needed.get(field.name) or optional.get(field.name)
        if kinds is None:
            known = ", ".join((*needed, *optional))
            raise BadInput(f"{where} does not know the column {field.name!r}; it takes {known}")
        if field.dataType not in kinds:
            told = " or ".join(kind.simpleString() for kind in kinds)
            raise BadInput(f"{where}: the column {field.name!r} must be {told}, not {field.dataType.simpleString()}")
    for name in needed:
        if name not in schema.names:
            raise BadInput(f"{where} needs a column {name!r}; there are {', '.join(schema.names) or 'none'}")
    return list(schema.names)
