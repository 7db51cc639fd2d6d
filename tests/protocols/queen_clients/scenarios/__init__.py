"""What users of the official client do, one module per subject. Importing one puts its scenarios on the list."""

import tests.protocols.queen_clients.scenarios.administering as administering
import tests.protocols.queen_clients.scenarios.consuming as consuming
import tests.protocols.queen_clients.scenarios.dead_letters as dead_letters
import tests.protocols.queen_clients.scenarios.grouping as grouping
import tests.protocols.queen_clients.scenarios.leasing as leasing
import tests.protocols.queen_clients.scenarios.observing as observing
import tests.protocols.queen_clients.scenarios.partitioning as partitioning
import tests.protocols.queen_clients.scenarios.pushing as pushing
import tests.protocols.queen_clients.scenarios.queues as queues
import tests.protocols.queen_clients.scenarios.settling as settling
import tests.protocols.queen_clients.scenarios.transacting as transacting
from tests.protocols.queen_clients.stage import SCENARIOS

__all__ = [
    "SCENARIOS",
    "administering",
    "consuming",
    "dead_letters",
    "grouping",
    "leasing",
    "observing",
    "partitioning",
    "pushing",
    "queues",
    "settling",
    "transacting",
]
