"""What users of the official client do, one module per subject. Importing one puts its scenarios on the list."""

import tests.server.queen_clients.scenarios.administering as administering
import tests.server.queen_clients.scenarios.consuming as consuming
import tests.server.queen_clients.scenarios.dead_letters as dead_letters
import tests.server.queen_clients.scenarios.grouping as grouping
import tests.server.queen_clients.scenarios.leasing as leasing
import tests.server.queen_clients.scenarios.observing as observing
import tests.server.queen_clients.scenarios.partitioning as partitioning
import tests.server.queen_clients.scenarios.pushing as pushing
import tests.server.queen_clients.scenarios.queues as queues
import tests.server.queen_clients.scenarios.settling as settling
import tests.server.queen_clients.scenarios.transacting as transacting
from tests.server.queen_clients.stage import SCENARIOS

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
