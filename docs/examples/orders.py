"""Write orders to a cluster, and read three of them as the group 'billing': ``python orders.py SERVER COUNT``."""

import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

server, count = sys.argv[1], int(sys.argv[2])
admin = AdminClient({"bootstrap.servers": server})
if "orders" not in admin.list_topics().topics:
    admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result()
producer = Producer({"bootstrap.servers": server, "enable.idempotence": True})
refused = []
for number in range(count):
    producer.produce(
        "orders", f"order {number}", key=f"customer {number % 7}",
        on_delivery=lambda error, _: refused.append(error.name()) if error else None,
    )  # fmt: skip
producer.flush(30)
print(f"{count - len(refused)} orders written, {len(refused)} refused", *set(refused))

consumer = Consumer({"bootstrap.servers": server, "group.id": "billing", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
read = consumer.consume(3, timeout=30)
consumer.commit(asynchronous=False)
consumer.close()
print("billing has read", ", ".join(f"partition {one.partition()} offset {one.offset()}" for one in read))
