"""Kafka's protocol is imported late, and by several threads at once."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import importlib, sys, threading
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.cluster import WireCluster

MODULES = ["kafka.protocol.admin", "kafka.protocol.metadata", "kafka.protocol.producer", "kafka.protocol.consumer.group"]
config, begin, wrong = ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, "target"), threading.Barrier(4), []

def first_request(module):
    begin.wait()
    try:
        WireCluster(config)
        importlib.import_module(module)
    except BaseException as e:
        wrong.append(f"{module}: {type(e).__name__}: {e}")

assert "kafka" not in sys.modules
threads = [threading.Thread(target=first_request, args=[module]) for module in MODULES]
for one in threads: one.start()
for one in threads: one.join()
print(wrong)
"""


def test_threads_that_make_their_first_request_at_once_find_whole_modules() -> None:
    """A triggerer with many triggers, or a cutover beside the thread that gives its signs of life."""
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert found.stdout == "[]\n", found.stdout + found.stderr
