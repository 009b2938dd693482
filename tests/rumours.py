"""What brokers say of a topic that is not there, believed sooner than production believes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.wire import metadata


@pytest.fixture(autouse=True, scope="session")
def soon_believed() -> Iterator[None]:
    """All brokers say at once that there is no topic; it need not be asked for three seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "_UNANIMOUS_S", 0.1)
        yield
