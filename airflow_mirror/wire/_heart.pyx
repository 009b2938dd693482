# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled heart: what a copy does for each small batch and each of its records (:mod:`airflow_mirror.wire.heart`).

Pure Python has the same functions and gives the same bytes; what is not plain here is left to it. The bytes come from
brokers and may be anything: each length is compared with what is left before a byte behind it is read, and sums are made
where they can't overflow. Offsets, counts and sizes are int64; timestamps wrap like a Java long, so they are unsigned here.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from array import array as _array

cdef extern from "Python.h":  # Cython's own declarations use macros, which are no part of the stable ABI
    char *PyByteArray_AsString(object)
    object PyByteArray_FromStringAndSize(const char *, Py_ssize_t)
    int PyByteArray_Resize(object, Py_ssize_t) except -1
    object PyBytes_FromStringAndSize(const char *, Py_ssize_t)

cdef extern from *:
    """
    /* CRC-32C by the instruction of x86-64 where the processor has it, else by tables, eight bytes at a time.
       HEART_TABLES leaves the instruction out, to test the tables. Integers are read byte by byte: any byte order will do. */
    #include <stdint.h>
    #include <string.h>

    #define HEART_POLYNOMIAL 0x82F63B78u /* reflected: the highest bit is x to the 0 */
    static uint32_t heart_table[8][256];
    static uint32_t heart_zeros[64]; /* x to the 8 * 2^k, modulo the polynomial: what 2^k more bytes make of a remainder */
    static int heart_has_instruction;

    static uint32_t heart_times(uint32_t a, uint32_t b) {
        uint32_t product = 0;
        for (uint32_t bit = 0x80000000u; bit; bit >>= 1) {
            if (a & bit) product ^= b;
            b = b & 1 ? b >> 1 ^ HEART_POLYNOMIAL : b >> 1;
        }
        return product;
    }

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(HEART_TABLES)
    #include <nmmintrin.h>
    __attribute__((target("sse4.2"))) static uint32_t heart_crc_instruction(uint32_t crc, const unsigned char *p, size_t n) {
        uint64_t wide = crc, word;
        for (; n >= 8; p += 8, n -= 8) { memcpy(&word, p, 8); wide = _mm_crc32_u64(wide, word); }
        for (crc = (uint32_t)wide; n; n--) crc = _mm_crc32_u8(crc, *p++);
        return crc;
    }
    static int heart_processor(void) { __builtin_cpu_init(); return __builtin_cpu_supports("sse4.2") ? 1 : 0; }
    #else
    static uint32_t heart_crc_instruction(uint32_t crc, const unsigned char *p, size_t n) { (void)p; (void)n; return crc; }
    static int heart_processor(void) { return 0; }
    #endif

    static void heart_begin(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ HEART_POLYNOMIAL : crc >> 1;
            heart_table[0][i] = crc;
        }
        for (uint32_t i = 0; i < 256; i++)
            for (int t = 1; t < 8; t++)
                heart_table[t][i] = heart_table[t - 1][i] >> 8 ^ heart_table[0][heart_table[t - 1][i] & 255];
        heart_zeros[0] = 0x80000000u >> 8;
        for (int k = 1; k < 64; k++) heart_zeros[k] = heart_times(heart_zeros[k - 1], heart_zeros[k - 1]);
        heart_has_instruction = heart_processor();
    }
    static uint32_t heart_crc_by_tables(const unsigned char *p, size_t n) {
        uint32_t crc = 0xFFFFFFFFu;
        for (; n >= 8; p += 8, n -= 8) {
            crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
            crc = heart_table[7][crc & 255] ^ heart_table[6][crc >> 8 & 255] ^ heart_table[5][crc >> 16 & 255]
                ^ heart_table[4][crc >> 24] ^ heart_table[3][p[4]] ^ heart_table[2][p[5]] ^ heart_table[1][p[6]]
                ^ heart_table[0][p[7]];
        }
        while (n--) crc = crc >> 8 ^ heart_table[0][(crc ^ *p++) & 255];
        return ~crc;
    }
    static uint32_t heart_crc(const unsigned char *p, size_t n) {
        return heart_has_instruction ? ~heart_crc_instruction(0xFFFFFFFFu, p, n) : heart_crc_by_tables(p, n);
    }
    /* A CRC is affine: where only the first bytes change, so does the CRC by their difference, moved by what follows. */
    static uint32_t heart_crc_behind(uint32_t difference, uint64_t following) {
        for (int k = 0; following; k++, following >>= 1)
            if (following & 1) difference = heart_times(heart_zeros[k], difference);
        return difference;
    }
    static uint32_t heart_u32(const unsigned char *p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    static uint64_t heart_u64(const unsigned char *p) { return (uint64_t)heart_u32(p) << 32 | heart_u32(p + 4); }
    """
    void heart_begin()
    bint heart_has_instruction
    uint32_t heart_crc(const unsigned char *, size_t) nogil
    uint32_t heart_crc_by_tables(const unsigned char *, size_t) nogil
    uint32_t heart_crc_behind(uint32_t, uint64_t) nogil
    uint32_t heart_u32(const unsigned char *) nogil
    uint64_t heart_u64(const unsigned char *) nogil

# Of `wire.heart`, which takes no other: a module that was built from an older state of this file must not run.
INTERFACE = 4

cdef enum:
    HEADER = 61  # bytes of a batch's header
    PREFIX = 17  # of which say where it ends, and what it is
    OVERHEAD = 12  # bytes that its length does not count
    FRAME = 21  # at most, of a record besides its body (`packed.FRAME_BYTES`)
    CODEC = 7
    LZ4 = 3
    APPENDED = 8  # LogAppendTime
    OTHERWISE = 0x28  # markers and LogAppendTime (`tiers.passes`)

heart_begin()
HAS_INSTRUCTION = bool(heart_has_instruction)


def crc(content, bint by_tables=False):
    """Return the CRC-32C of bytes, also as it is found where the processor has no instruction for it."""
    cdef Py_buffer b
    PyObject_GetBuffer(content, &b, PyBUF_SIMPLE)
    try:
        return (heart_crc_by_tables if by_tables else heart_crc)(<const unsigned char *>b.buf, b.len)
    finally:
        PyBuffer_Release(&b)


def crc_with_another_begin(uint32_t crc, before, after, uint64_t following):
    """Return the CRC-32C of bytes that had another one, and begin otherwise now.

    :param crc: of ``before`` and the bytes behind it. :param after: as long as ``before``.
    :param following: how many bytes are behind it.
    :raises ValueError: another length.
    """
    cdef Py_buffer b, a
    PyObject_GetBuffer(before, &b, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(after, &a, PyBUF_SIMPLE)
        try:
            if a.len != b.len:
                raise ValueError(f"{a.len} bytes for {b.len}")
            return crc ^ heart_crc_behind(
                heart_crc(<const unsigned char *>a.buf, a.len) ^ heart_crc(<const unsigned char *>b.buf, b.len), following
            )
        finally:
            PyBuffer_Release(&a)
    finally:
        PyBuffer_Release(&b)


def scan(records):
    """Return what `batch.scan` does; None where that has more to say."""
    cdef Py_buffer b
    cdef const unsigned char *p
    cdef Py_ssize_t at = 0
    cdef int64_t count = 0, size, base = 0, delta = 0
    cdef int magic
    PyObject_GetBuffer(records, &b, PyBUF_SIMPLE)
    try:
        while b.len - at > PREFIX:
            p = <const unsigned char *>b.buf + at
            size = OVERHEAD + <int64_t><int32_t>heart_u32(p + 8)
            magic = p[16]
            if magic > 2 or size < (HEADER if magic == 2 else 34 if magic == 1 else 26):
                return None
            if size > b.len - at:
                break
            count += 1
            base, delta = <int64_t>heart_u64(p), <int32_t>heart_u32(p + 23) if magic == 2 else 0
            at += size
        if not 0 <= base < INT64_MAX - 0x100000000:
            return None
        return count, base + delta + 1 if count else 0
    finally:
        PyBuffer_Release(&b)


cdef inline const unsigned char *_varint(const unsigned char *p, const unsigned char *end, int64_t *value) noexcept nogil:
    """Read a zig-zag integer and return where it ends; NULL if it does not, or has more than ten bytes."""
    cdef uint64_t found = 0
    cdef int shift = 0
    while p < end and shift <= 63:
        found |= <uint64_t>(p[0] & 0x7F) << shift
        if p[0] < 0x80:
            value[0] = <int64_t>(found >> 1 ^ (0 - (found & 1)))
            return p + 1
        p += 1
        shift += 7
    return NULL


cdef inline unsigned char *_put(unsigned char *into, uint64_t value) noexcept nogil:
    """Write an int64 in zig-zag encoding and return where it ends: at most ten bytes."""
    value = value << 1 ^ (0 - (value >> 63))
    while value > 0x7F:
        into[0] = <unsigned char>(value | 0x80)
        value >>= 7
        into += 1
    into[0] = <unsigned char>value
    return into + 1


cdef inline int _width(uint64_t value) noexcept nogil:
    cdef int bytes_ = 1
    value = value << 1 ^ (0 - (value >> 63))
    while value > 0x7F:
        value >>= 7
        bytes_ += 1
    return bytes_


cdef struct _Sums:  # of what is in a batch that is encoded
    int64_t count
    int64_t size  # of a merged one: an upper bound of its bytes, as `joining.Joiner` counts them
    Py_ssize_t used  # bytes that are written
    uint64_t base  # timestamps
    uint64_t last
    int64_t newest


cdef void _append(_Sums *s, unsigned char *out, uint64_t timestamp, const unsigned char *body, Py_ssize_t n) noexcept nogil:
    """Append a record, for which ``out`` has room."""
    cdef unsigned char *into = out + s.used
    if s.count == 0:
        s.base, s.newest = timestamp, <int64_t>timestamp
    elif <int64_t>timestamp > s.newest:
        s.newest = <int64_t>timestamp
    into = _put(into, <uint64_t>(1 + _width(timestamp - s.base) + _width(<uint64_t>s.count) + n))
    into[0] = 0  # attributes, of which no bit has a meaning yet
    into = _put(_put(into + 1, timestamp - s.base), <uint64_t>s.count)
    if n:
        memcpy(into, body, n)
    s.used = into + n - out
    s.size += FRAME + n
    s.last = timestamp
    s.count += 1


cdef struct _Framed:  # a record in its payload, without its attributes
    int64_t since  # deltas
    int64_t delta
    const unsigned char *body
    const unsigned char *stop


cdef bint _read(_Framed *r, const unsigned char *p, const unsigned char *end, int64_t last, int64_t last_delta) noexcept nogil:
    """Read the record at ``p``, behind one of the delta ``last``; return whether it is what `packed.split` takes."""
    cdef int64_t size
    p = _varint(p, end, &size)
    if p == NULL or size < 1 or size > end - p:
        return False
    r.stop = p + size
    p = _varint(p + 1, end, &r.since)
    if p == NULL:
        return False
    r.body = p = _varint(p, end, &r.delta)
    return p != NULL and p <= r.stop and last < r.delta <= last_delta


cdef const unsigned char *_sized(const unsigned char *p, const unsigned char *end, bint nullable) noexcept nogil:
    """Return where a field ends that begins with its size; NULL if it goes beyond ``end``."""
    cdef int64_t size
    p = _varint(p, end, &size)
    if p == NULL or size < (-1 if nullable else 0) or size > end - p:
        return NULL
    return p + max(size, 0)


cdef bint _append_all(
    _Sums *s, unsigned char *out, int64_t limit, int64_t count, int64_t last_delta, uint64_t base_timestamp,
    const unsigned char *p, Py_ssize_t n
) noexcept nogil:
    """Append the records of a payload; return whether it is what its header says, and fits into ``limit`` bytes.

    ``out`` has so many.
    """
    cdef const unsigned char *end = p + n
    cdef _Framed r
    cdef int64_t i, last = -1
    for i in range(count):
        if not _read(&r, p, end, last, last_delta) or r.stop - r.body > limit - FRAME - s.size:
            return False
        last = r.delta
        _append(s, out, base_timestamp + <uint64_t>r.since, r.body, r.stop - r.body)
        p = r.stop
    return p == end


cdef class _Spans:
    """Runs of consecutive offsets, as `tiers.Encoded` has them: first offset and count of each, one after the other."""

    cdef int64_t *at
    cdef Py_ssize_t used, room

    def __cinit__(self):
        self.at, self.used, self.room = NULL, 0, 0

    def __dealloc__(self):
        free(self.at)

    cdef int add(self, int64_t first, int64_t count) except -1:
        """Append records."""
        cdef int64_t *larger
        if self.used and self.at[self.used - 2] + self.at[self.used - 1] == first:
            self.at[self.used - 1] += count
            return 0
        if self.used == self.room:
            larger = <int64_t *>realloc(self.at, (2 * self.room + 64) * sizeof(int64_t))
            if larger == NULL:
                raise MemoryError()
            self.at, self.room = larger, 2 * self.room + 64
        self.at[self.used], self.at[self.used + 1] = first, count
        self.used += 2
        return 0

    cdef whole(self):
        """Return them as an array."""
        return _array("q", PyBytes_FromStringAndSize(<const char *>self.at, self.used * <Py_ssize_t>sizeof(int64_t)))


cdef class Merger:
    """The records of small neighbouring batches, encoded as one batch: what `joining.Joiner` keeps in Python objects.

    :param below: in bytes; larger batches are not taken. :param limit: the most bytes of a merged batch.
    :param dense: take nothing behind a hole.
    :param decompress: ``codec.decompress``.
    :ivar first: what was taken first, if nothing else was: a batch's view, or what :meth:`took` was given.
    :ivar read: where the next batch begins in what :meth:`run` was given, in bytes. :ivar next: the offset behind the last batch.
    """

    cdef readonly int64_t batches, first_offset, next
    cdef readonly Py_ssize_t read
    cdef readonly int codec
    cdef readonly object first
    cdef int64_t below, limit
    cdef bint dense
    cdef object decompress, out
    cdef _Spans spans
    cdef _Sums sums

    def __init__(self, below, limit, dense, decompress):
        self.below, self.limit, self.dense, self.decompress = below, limit, dense, decompress
        self._begin()

    cdef _begin(self):
        self.out = self.first = None
        self.spans = _Spans()
        self.batches = self.codec = 0
        self.sums = _Sums(count=0, size=HEADER, used=HEADER, base=0, last=0, newest=INT64_MIN)

    def follows(self, at, int number):
        """Return whether a batch of this offset and codec may be taken next."""
        return self.batches == 0 or (number == self.codec and (at == self.next or not self.dense))

    def take_batch(self, view):
        """Take an intact, dense batch that could pass unchanged; return False if it does not fit."""
        cdef Py_buffer b
        cdef const unsigned char *h
        PyObject_GetBuffer(view, &b, PyBUF_SIMPLE)
        try:
            h = <const unsigned char *>b.buf
            return b.len >= HEADER and <int32_t>heart_u32(h + 57) > 0 and self._take(h, b.len, view, 0)
        finally:
            PyBuffer_Release(&b)

    cdef bint _take(self, const unsigned char *h, Py_ssize_t total, view, Py_ssize_t at) except -1:
        """Take the batch at ``h``, which is byte ``at`` of ``view``."""
        cdef int64_t base = <int64_t>heart_u64(h), count = <int32_t>heart_u32(h + 57)
        cdef int number = h[22] & CODEC
        cdef Py_buffer b
        cdef _Sums sums = self.sums  # what does not fit is written behind `used`, and so it was never there
        cdef unsigned char *out
        cdef bint fits
        if total >= self.below or not (
            self.batches == 0 or (number == self.codec and (base == self.next or not self.dense))
        ):
            return False
        # Before decompression: a small batch may hold a million records.
        if count > (self.limit - sums.size) // FRAME:
            return False
        out = self._room()
        if number == 0:
            fits = self._append_batch(&sums, out, h, h + HEADER, total - HEADER)
        else:
            try:
                plain = self.decompress(number, view[at + HEADER : at + total])
            except ValueError:
                return False
            PyObject_GetBuffer(plain, &b, PyBUF_SIMPLE)
            fits = self._append_batch(&sums, out, h, <const unsigned char *>b.buf, b.len)
            PyBuffer_Release(&b)
        if fits:
            if self.batches == 0:
                self.first = view[at : at + total]
            self.sums = sums
            self.spans.add(base, count)
            self._took(base, number, base + count)
        return fits

    cdef bint _append_batch(
        self, _Sums *sums, unsigned char *out, const unsigned char *h, const unsigned char *p, Py_ssize_t n
    ) noexcept:
        return _append_all(
            sums, out, self.limit, <int32_t>heart_u32(h + 57), <int32_t>heart_u32(h + 23), heart_u64(h + 27), p, n
        )

    cdef unsigned char *_room(self) except NULL:
        # As large as a merged batch may be: what is not written to takes no memory, and nothing is copied when it grows.
        if self.out is None:
            self.out = PyByteArray_FromStringAndSize(NULL, self.limit + FRAME)
        return <unsigned char *>PyByteArray_AsString(self.out)

    cdef _took(self, int64_t base, int number, int64_t behind):
        if self.batches == 0:
            self.first_offset, self.codec = base, number
        self.batches += 1
        self.next = behind

    def take(self, first, batch, spans, int64_t base_timestamp, int number, behind):
        """Take the records of ``first``, which ends before offset ``behind``; False if they don't fit.

        :param batch: encoded, as a :class:`Cutter` yields it. :param spans: of its offsets.
        """
        cdef Py_buffer b
        cdef _Sums sums = self.sums
        cdef unsigned char *out = self._room()
        cdef int64_t count = sum(spans[1::2])
        cdef Py_ssize_t i
        cdef bint fits
        PyObject_GetBuffer(batch, &b, PyBUF_SIMPLE)
        fits = b.len > HEADER and _append_all(
            &sums, out, self.limit, count, count - 1, <uint64_t>base_timestamp, <const unsigned char *>b.buf + HEADER,
            b.len - HEADER
        )
        PyBuffer_Release(&b)
        if not fits:
            return False
        if self.batches == 0:
            self.first = first
        self.sums = sums
        for i in range(0, len(spans), 2):
            self.spans.add(spans[i], spans[i + 1])
        self._took(spans[0], number, behind)
        return True

    def run(self, records, Py_ssize_t read, at, int64_t end, int64_t max_bytes, int doubtful, int32_t epoch):
        """Take batches from byte ``read`` on, while they pass unchanged (`tiers.passes`) and fit.

        :param at: the offset of the first. :param end: that they end before. :param epoch: the leader epoch of all.
        :param doubtful: attributes that none has.
        :return: whether it ended because a batch does not fit behind those that were taken; else the batch at
            :attr:`read` is for Python to judge, if there is one.
        """
        cdef Py_buffer b
        cdef const unsigned char *h
        cdef int64_t total, base, count
        cdef int attributes
        self.read = read
        if not 0 <= at <= end:
            return False
        base = at
        PyObject_GetBuffer(records, &b, PyBUF_SIMPLE)
        try:
            while b.len - self.read >= HEADER:
                h = <const unsigned char *>b.buf + self.read
                total = OVERHEAD + <int64_t><int32_t>heart_u32(h + 8)
                attributes = <int16_t>(heart_u32(h + 21) >> 16)
                count = <int32_t>heart_u32(h + 57)
                if (
                    total < HEADER or total > b.len - self.read or total > max_bytes or total >= self.below or h[16] != 2
                    or <int64_t>heart_u64(h) != base or <int32_t>heart_u32(h + 12) != epoch
                    or attributes & (OTHERWISE | doubtful)
                    or count <= 0 or count != <int64_t><int32_t>heart_u32(h + 23) + 1 or count > end - base
                    or (attributes & CODEC == LZ4 and total > HEADER + 4 and not h[HEADER + 4] & 0x20)
                    or heart_crc(h + 21, total - 21) != heart_u32(h + 17)
                ):
                    return False
                if not self._take(h, total, records, self.read):
                    return self.batches > 0
                self.read += total
                base += count
            return False
        finally:
            PyBuffer_Release(&b)

    def flush(self):
        """Return what was taken, and start over: the batch after room for its header, and what else is known of it.

        That is the number of records and its bytes at most, base, newest and last timestamp, and the runs of its offsets.
        """
        PyByteArray_Resize(self.out, self.sums.used)
        found = (
            self.sums.count, self.sums.size, self.out, <int64_t>self.sums.base, self.sums.newest,
            <int64_t>self.sums.last, self.spans.whole(),
        )
        self._begin()
        return found

    def clear(self):
        """Start over without what was taken."""
        self._begin()


cdef class Cutter:
    """The records of a batch that can't pass, encoded anew as batches that the target takes: `tiers.cut`.

    Yields of each: its first offset, the offset behind it, the number of records, the bytes, and a `tiers.Encoded`.

    :param view: the batch, of magic 2. :param plain: its payload, uncompressed.
    :param start: the first offset that is wanted, before ``end``. :param dense: cut at holes.
    :param wanted: says of a key whether its record is wanted; None: all are.
    :ivar whole: every record was read. Else it ended where one is not as it should be, and before what stands in front of it.
    """

    cdef readonly bint whole
    cdef object plain, wanted
    cdef int64_t base, start, end, max_bytes, count, last_delta
    cdef uint64_t base_timestamp, appended
    cdef bint dense, has_appended
    cdef Py_ssize_t at
    cdef int64_t number, last  # of records that were read, and the delta of the last

    def __init__(self, view, plain, int64_t start, int64_t end, int64_t max_bytes, bint dense, wanted):
        cdef Py_buffer b
        cdef const unsigned char *h
        PyObject_GetBuffer(view, &b, PyBUF_SIMPLE)
        try:
            if b.len < HEADER:
                raise ValueError("a batch without a whole header")
            h = <const unsigned char *>b.buf
            self.base, self.last_delta = <int64_t>heart_u64(h), <int32_t>heart_u32(h + 23)
            self.count = <int32_t>heart_u32(h + 57)
            self.base_timestamp, self.appended = heart_u64(h + 27), heart_u64(h + 35)
            self.has_appended = h[22] & APPENDED != 0
        finally:
            PyBuffer_Release(&b)
        self.plain, self.wanted = plain, wanted
        self.start, self.end, self.max_bytes, self.dense = start, end, max_bytes, dense
        self.at = self.number = 0
        self.last = -1
        self.whole = False

    def __iter__(self):
        return self

    def __next__(self):
        cdef Py_buffer b
        cdef const unsigned char *p
        cdef const unsigned char *stop
        cdef unsigned char *out = NULL
        cdef _Framed r
        cdef _Sums sums = _Sums(count=0, size=HEADER, used=HEADER, base=0, last=0, newest=INT64_MIN)
        cdef int64_t offset, behind = 0, size, most
        cdef uint64_t time_ms
        cdef _Spans spans = _Spans()
        # An offset that an int64 can't hold is for Python to judge.
        if self.whole or not 0 <= self.base < INT64_MAX - 0x100000000:
            raise StopIteration
        batch = None
        PyObject_GetBuffer(self.plain, &b, PyBUF_SIMPLE)
        try:
            p = <const unsigned char *>b.buf + self.at
            stop = <const unsigned char *>b.buf + b.len
            while self.number < self.count:
                if not _read(&r, p, stop, self.last, self.last_delta):
                    raise StopIteration
                offset = self.base + r.delta
                if self.start <= offset < self.end and self._takes(r.body, r.stop):
                    time_ms = self.appended if self.has_appended else self.base_timestamp + <uint64_t>r.since
                    size = r.stop - r.body
                    if sums.count:
                        if self.dense and offset != behind:
                            break
                        most = 1 + _width(time_ms - sums.base) + _width(<uint64_t>sums.count) + size
                        if sums.used + _width(<uint64_t>most) + most > self.max_bytes:
                            break
                    else:
                        # What all that is left can take: a record of four bytes at least around its body gets 21 at most.
                        most = HEADER + (stop - p) + (FRAME - 4) * (self.count - self.number)
                        most = max(min(most, self.max_bytes), HEADER + FRAME + size)
                        batch = PyByteArray_FromStringAndSize(NULL, most)
                        out = <unsigned char *>PyByteArray_AsString(batch)
                    _append(&sums, out, time_ms, r.body, size)
                    spans.add(offset, 1)
                    behind = offset + 1
                self.number += 1
                self.last = r.delta
                p = r.stop
                self.at = p - <const unsigned char *>b.buf
            else:
                if p != stop:
                    raise StopIteration
                self.whole = True
        finally:
            PyBuffer_Release(&b)
        if sums.count == 0:
            raise StopIteration
        PyByteArray_Resize(batch, sums.used)
        encoded = batch, <int64_t>sums.base, sums.newest, <int64_t>sums.last, spans.whole()
        return spans.at[0], behind, sums.count, sums.used, encoded

    cdef bint _takes(self, const unsigned char *body, const unsigned char *stop) except -1:
        """Return whether a record is wanted. One whose fields can't be read is for Python to judge (`packed.fields_of`)."""
        cdef const unsigned char *key
        cdef const unsigned char *at
        cdef int64_t key_size, size, headers, i
        key = _varint(body, stop, &key_size)
        if key == NULL or key_size < -1 or key_size > stop - key:
            raise StopIteration
        at = _sized(key + max(key_size, 0), stop, True)
        if at != NULL:
            at = _varint(at, stop, &headers)
        if at == NULL or headers < 0:
            raise StopIteration
        for i in range(headers):
            at = _sized(at, stop, False)
            if at != NULL:
                at = _sized(at, stop, True)
            if at == NULL:
                raise StopIteration
        if at != stop:
            raise StopIteration
        if self.wanted is None:
            return True
        return bool(self.wanted(None if key_size == -1 else PyBytes_FromStringAndSize(<const char *>key, key_size)))
