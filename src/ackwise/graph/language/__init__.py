"""MEW's language: grammar, parser, syntax tree, errors with line and column."""

from ackwise.core.extras import needed

with needed("mew", "MEW"):
    from ackwise.graph.language.parser import Parsed, is_quick, parse
    from ackwise.graph.language.text_limits import check_params, portions

__all__ = ["Parsed", "check_params", "is_quick", "parse", "portions"]
