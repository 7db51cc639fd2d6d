"""AMPS: publish to a queue and subscribe to it over TCP. Run: python examples/amps.py

AMPS needs a server, so this example starts one on free ports and stops it at the end.
"""

import subprocess
import sys
import tempfile

from ackwise.amps import Client

SERVE = [sys.executable, "-c", "from ackwise.cli import main; main()", "serve", "--port", "0", "--amps-port", "0"]

with (
    tempfile.TemporaryDirectory() as folder,
    subprocess.Popen([*SERVE, "--store", f"sqlite:///{folder}/queue.db"], stdout=subprocess.PIPE, text=True) as server,
):
    try:
        address = next(line.split()[1] for line in server.stdout if line.startswith("amps "))
        client = Client("billing").connect(address).logon()
        for number in range(3):
            client.publish("queue://orders", {"id": number})
        for message in client.subscribe("queue://orders", max_backlog=10):
            print(message.topic, message.json(), "acked:", client.ack_message(message))
            if message.json()["id"] == 2:
                break
        client.close()
    finally:
        server.terminate()
