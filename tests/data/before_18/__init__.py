"""Data that the version before the new package layout wrote. README.md says what it is and how it was made."""
