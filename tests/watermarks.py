"""Where a partition starts and ends, as a plain consumer is told."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition


def watermarks(consumer: Consumer, tp: TopicPartition, timeout_s: float, passing: int) -> tuple[int, int]:
    """Return a partition's start and end.

    :param passing: code of an error that passes by itself: for a moment nobody may know who leads the partition.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return consumer.get_watermark_offsets(tp, timeout=timeout_s)
        except KafkaException as e:
            if e.args[0].code() != passing or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
