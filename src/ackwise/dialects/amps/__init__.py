"""AMPS-style queue consumption over TCP: its frames and words over our engine."""

from ackwise.dialects.amps.face import Admit, AmpsFace

__all__ = ["Admit", "AmpsFace"]
