"""What can go wrong for an AMPS client."""

from __future__ import annotations

from ackwise.core.errors import AckwiseError


class CommandFailed(AckwiseError):
    """The server refused the command."""

    code = "command_failed"


class NoAnswer(CommandFailed):
    """The server did not answer in time: whether it has done it is not known."""

    code = "no_answer"


class Disconnected(AckwiseError):
    """There is no connection to a server."""

    code = "disconnected"
