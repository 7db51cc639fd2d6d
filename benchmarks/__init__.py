"""Measurements. Compare ratios within one run: absolute figures say more about the machine than about us."""
