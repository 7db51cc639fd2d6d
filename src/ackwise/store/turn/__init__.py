"""What one turn does: commands are planned against the open transaction by the core's rules and applied to the rows."""
