from array import array
from collections.abc import Callable, Iterator

INTERFACE: int
HAS_INSTRUCTION: bool

def crc(content: bytes | memoryview, by_tables: bool = False) -> int: ...
def scan(records: memoryview) -> tuple[int, int] | None: ...

class Merger:
    batches: int
    first_offset: int
    next: int
    read: int
    codec: int
    first: object
    def __init__(
        self, below: int, limit: int, dense: bool, decompress: Callable[[int, memoryview], bytes | memoryview]
    ) -> None: ...
    def follows(self, at: int, number: int) -> bool: ...
    def take_batch(self, view: memoryview) -> bool: ...
    def take(
        self,
        first: object,
        batch: bytearray,
        spans: array[int],
        base_timestamp: int,
        number: int,
        behind: int,
    ) -> bool: ...
    def run(
        self, records: memoryview, read: int, at: int, end: int, max_bytes: int, doubtful: int, epoch: int
    ) -> bool: ...
    def flush(self) -> tuple[int, int, bytearray, int, int, int, array[int]]: ...
    def clear(self) -> None: ...

class Cutter:
    whole: bool
    def __init__(
        self,
        view: memoryview,
        plain: bytes | memoryview,
        start: int,
        end: int,
        max_bytes: int,
        dense: bool,
        wanted: Callable[[bytes | None], bool] | None,
    ) -> None: ...
    def __iter__(self) -> Iterator[tuple[int, int, int, int, tuple[bytearray, int, int, int, array[int]]]]: ...
    def __next__(self) -> tuple[int, int, int, int, tuple[bytearray, int, int, int, array[int]]]: ...
