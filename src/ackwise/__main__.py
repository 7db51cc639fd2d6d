"""`python -m ackwise`: the command line."""

from ackwise.cli import main

main()
