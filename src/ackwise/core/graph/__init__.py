"""The graph that MEW's statements are about: its syntax tree, its types, its values, and what a watch is."""
