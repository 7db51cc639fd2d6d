"""PushPop: items with priorities, held under a lock until you acknowledge them. Run: python examples/pushpop.py"""

import tempfile

from ackwise.pushpop import PushPop, QueueLocked

with tempfile.TemporaryDirectory() as folder, PushPop("mails", f"sqlite:///{folder}/queue.db") as mails:
    mails.push({"to": "ann"}, priority=1)
    mails.push({"to": "bob"}, priority=0)  # priority 0 comes first

    popped = mails.pop_with_ack(ttl_seconds=60)
    print("popped", popped["items"])
    try:
        mails.pop()
    except QueueLocked:
        print("the queue is locked until the item is acknowledged")
    print("acknowledged", mails.acknowledge(popped["lock_id"])["items_acknowledged"])
    print("popped", mails.pop())
