"""Structs that several threads use first at the same time."""

from __future__ import annotations

import subprocess
import sys

RACE = """
import sys, threading
import msgspec
from ackwise.core.policy import QueuePolicy

sys.setswitchinterval(1e-6)
policy = QueuePolicy()
fields = {name: getattr(policy, name) for name in policy.__struct_fields__}
fields = {n: msgspec.structs.asdict(v) if isinstance(v, msgspec.Struct) else v for n, v in fields.items()}
text = msgspec.json.encode(fields)
both = threading.Barrier(2)

def decode():
    both.wait()
    msgspec.json.decode(text, type=QueuePolicy)

beside = threading.Thread(target=decode)
beside.start()
both.wait()
for _ in range(2000):
    try:
        msgspec.convert(fields, QueuePolicy)
    except msgspec.ValidationError:
        pass
beside.join()
"""


def test_struct_used_first_by_several_threads_survives() -> None:
    """About half of these runs did, before the struct was learnt on import."""
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", RACE], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
