"""MEW's text: grammar, syntax tree, errors that point at the place."""

from ackwise.dialects.mew.language.parsing import Parsed, parse

__all__ = ["Parsed", "parse"]
