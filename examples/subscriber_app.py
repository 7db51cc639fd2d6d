"""An app of typed handlers, tested without a server. Run: python examples/subscriber_app.py

With a real store: ackwise run examples.subscriber_app:app
"""

import asyncio
from dataclasses import dataclass

from ackwise.subscriber import App, Message, TestApp

app = App("sqlite:///subscribers.db")


@dataclass
class Order:
    id: int
    total: float


@app.subscriber("orders", retry_limit=3, backoff=(2, 10))  # a payload parameter: the app settles
async def bill(order: Order) -> None:
    if order.total < 0:
        raise ValueError("negative total")  # a retry, later a dead letter
    print("billed order", order.id)


@app.subscriber("audit")  # a message parameter: you settle
async def audit(message: Message[Order]) -> None:
    print("audited order", message.payload.id, "acked:", await message.ack())


async def main() -> None:
    async with TestApp(app) as test:  # its own store, and a clock that the test moves
        await test.publish("orders", Order(id=1, total=9.5))
        await test.publish("orders", Order(id=2, total=-1))
        await test.publish("audit", Order(id=3, total=1))
        await test.deliver()
        await test.advance(2)  # the second attempt of order 2
        await test.advance(10)  # the third and last one
        letters = await test.dead_letters("orders")
        print("dead letters:", [(letter.reason, letter.error) for letter in letters])


if __name__ == "__main__":
    asyncio.run(main())
