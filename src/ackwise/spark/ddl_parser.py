"""Parser of schema text such as `order long, amount double`. It needs no JVM."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import types as t


class DdlParser:
    """Parses the part of Spark's DDL that describes JSON: names, simple types, decimal, array, map and struct."""

    _SIMPLE: ClassVar[dict[str, t.DataType]] = {
        "boolean": t.BooleanType(),
        "byte": t.ByteType(),
        "tinyint": t.ByteType(),
        "short": t.ShortType(),
        "smallint": t.ShortType(),
        "int": t.IntegerType(),
        "integer": t.IntegerType(),
        "long": t.LongType(),
        "bigint": t.LongType(),
        "float": t.FloatType(),
        "real": t.FloatType(),
        "double": t.DoubleType(),
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "date": t.DateType(),
        "timestamp": t.TimestampType(),
    }

    def __init__(self, text: str) -> None:
        self._words = _words(text)
        self._at = 0

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _next(self, *expected: str) -> str:
        word = self._peek()
        if not word or (expected and word not in expected):
            raise ValueError(f"expected {' or '.join(expected) or 'more'} at {word or 'the end'!r}")
        self._at += 1
        return word

    def columns(self) -> t.StructType:
        """Parse the whole text."""
        schema = self._fields("")
        if self._peek():
            raise ValueError(f"expected the end at {self._peek()!r}")
        return schema

    def _fields(self, end: str) -> t.StructType:
        fields: list[t.StructField] = []
        while True:
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self._peek() == ":":
                self._next()
            kind = self._type()
            fields.append(t.StructField(name, kind, self._nullable()))
            if self._peek() != ",":
                break
            self._next()
        if end:
            self._next(end)
        return t.StructType(fields)

    def _nullable(self) -> bool:
        if self._peek().lower() != "not":
            return True
        self._next()
        if self._next().lower() != "null":
            raise ValueError("expected null after not")
        return False

    def _type(self) -> t.DataType:
        word = self._next().lower()
        match word:
            case "array":
                self._next("<")
                inner = self._type()
                self._next(">")
                return t.ArrayType(inner)
            case "map":
                self._next("<")
                key = self._type()
                self._next(",")
                value = self._type()
                self._next(">")
                return t.MapType(key, value)
            case "struct":
                self._next("<")
                return self._fields(">")
            case "decimal" | "dec" | "numeric":
                return self._decimal()
            case _ if word in self._SIMPLE:
                return self._SIMPLE[word]
            case _:
                raise ValueError(f"unknown type {word!r}")

    def _decimal(self) -> t.DecimalType:
        if self._peek() != "(":
            return t.DecimalType(10, 0)
        self._next()
        precision, scale = int(self._next()), 0
        if self._peek() == ",":
            self._next()
            scale = int(self._next())
        self._next(")")
        return t.DecimalType(precision, scale)


def _words(text: str) -> list[str]:
    """Split at spaces and punctuation, outside of backquotes."""
    words, word, quoted = [], "", False
    for letter in text:
        if letter == "`":
            quoted = not quoted
            word += letter
        elif not quoted and (letter.isspace() or letter in "<>,:()"):
            if word:
                words.append(word)
            word = ""
            if not letter.isspace():
                words.append(letter)
        else:
            word += letter
    return [*words, word] if word else words
