"""Writes and reads values with the serializers of confluent-kafka, in an environment of their own (``serializers.txt``).

    python serializer_main.py write|read < REQUEST

A request is one JSON object: ``client`` (librdkafka's settings), ``registry`` (an address), ``topic``, ``kind`` (avro,
json or protobuf); to write ``names`` and ``in_headers`` (ids are GUIDs in a header then, which Apicurio 3.0.9 doesn't
give), to read ``group`` and ``count``. What was read comes as JSON on stdout, and is committed. Nothing of the package is
imported here.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

AVRO = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
JSON = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","title":"User","type":"object",'
    '"properties":{"name":{"type":"string"}}}'
)
_PATIENCE_S = 240.0


def _user() -> Any:
    """Return the class that protoc would make of ``message User { string name = 1; }``."""
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", syntax="proto3")
    message = file.message_type.add(name="User")
    message.field.add(name="name", number=1, type=9, label=1, json_name="name")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("User"))


def _serializer(kind: str, registry: SchemaRegistryClient, in_headers: bool) -> Any:
    conf = {"schema.id.serializer": header_schema_id_serializer} if in_headers else {}
    if kind == "avro":
        return AvroSerializer(registry, AVRO, lambda name, _: {"name": name}, conf)
    if kind == "json":
        return JSONSerializer(JSON, registry, lambda name, _: {"name": name}, conf)
    user = _user()
    protobuf = ProtobufSerializer(user, registry, {"use.deprecated.format": False, **conf})
    return lambda name, context: protobuf(user(name=name), context)


def _deserializer(kind: str, registry: SchemaRegistryClient) -> Any:
    if kind == "avro":
        return AvroDeserializer(registry, None, lambda value, _: value["name"])
    if kind == "json":
        return JSONDeserializer(JSON, lambda value, _: value["name"], registry)
    protobuf = ProtobufDeserializer(_user(), {"use.deprecated.format": False}, registry)
    return lambda value, context: protobuf(value, context).name


def _write(asked: dict[str, Any], registry: SchemaRegistryClient) -> None:
    serializer = _serializer(asked["kind"], registry, asked["in_headers"])
    producer = Producer(asked["client"])
    if transactional := asked["client"].get("transactional.id"):
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
    for name in asked["names"]:
        headers = list[tuple[str, bytes]]()
        value = serializer(name, SerializationContext(asked["topic"], MessageField.VALUE, headers))
        producer.produce(asked["topic"], value, name.encode(), headers=headers)
    if transactional:
        producer.commit_transaction(_PATIENCE_S)
    if left := producer.flush(_PATIENCE_S):
        raise SystemExit(f"{left} records were not written")


def _read(asked: dict[str, Any], registry: SchemaRegistryClient) -> list[str]:
    deserializer, names = _deserializer(asked["kind"], registry), list[str]()
    own = {"group.id": asked["group"], "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(asked["client"] | own)
    consumer.subscribe([asked["topic"]])
    deadline = time.monotonic() + _PATIENCE_S
    while len(names) < asked["count"]:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            context = SerializationContext(asked["topic"], MessageField.VALUE, message.headers())
            names.append(deserializer(message.value(), context))
        elif time.monotonic() > deadline:
            raise SystemExit(
                f"{len(names)} of {asked['count']} records came; the last answer: {message and message.error()}"
            )
    consumer.commit(asynchronous=False)
    consumer.close()
    return names


def main() -> None:
    """Do what is asked."""
    asked = json.load(sys.stdin)
    registry = SchemaRegistryClient({"url": asked["registry"]})
    if sys.argv[1] == "write":
        _write(asked, registry)
    else:
        json.dump(_read(asked, registry), sys.stdout)


if __name__ == "__main__":
    main()
