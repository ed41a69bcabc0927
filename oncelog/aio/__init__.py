"""asyncio twins of the clients: the same names and settings over the same engine.

    from oncelog.aio import Admin, Consumer, Producer

    async with Producer(bootstrap_servers="localhost:7001") as producer:
        acknowledgement = await producer.send("topic", b"value")
        metadata = await acknowledgement

Every call that waits in `oncelog` is awaited here; nothing blocks the event loop.
"""

from oncelog.aio.admin import Admin
from oncelog.aio.consumer import Consumer
from oncelog.aio.producer import Acknowledgement, Producer
from oncelog.aio.transaction import Transaction

__all__ = ["Acknowledgement", "Admin", "Consumer", "Producer", "Transaction"]
