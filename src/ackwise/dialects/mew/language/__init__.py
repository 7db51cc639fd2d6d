"""MEW's text: grammar, syntax tree, errors that point at the place."""

from ackwise.dialects.mew.language.bounds import check_params, portions
from ackwise.dialects.mew.language.parsing import Parsed, is_quick, parse

__all__ = ["Parsed", "check_params", "is_quick", "parse", "portions"]
