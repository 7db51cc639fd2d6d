"""The fluent client, with Queen's calls. Run: python examples/fluent.py

Here the client opens a store. With a server: Client("http://127.0.0.1:6632").
"""

import tempfile

from ackwise.fluent import Client

with tempfile.TemporaryDirectory() as folder, Client(f"sqlite:///{folder}/queue.db") as client:
    client.queue("orders").config(retry_limit=1, dlq_after_max_retries=True).create()
    client.push("orders", "eu", [{"data": {"id": number}} for number in range(3)])

    def handle(message):
        if message.data["id"] == 2:
            client.nack(message, "invalid data")
        else:
            client.ack(message)
            print("acked", message.data)

    client.queue("orders").group("processors").auto_ack(False).limit(3).consume(handle).run()
    for letter in client.get_dlq("orders").messages:
        print("dead letter:", letter.data, letter.error_message)
