"""MEW's graph: syntax tree, types, values, expressions, patterns and options of watches."""
