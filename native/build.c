/* Records written from columns (`records/build.py`), and the hash that puts keys to partitions. */

#include "functions.h"
#include "records.h"

/* The rows of `build.NUMBERS`. */
enum {
    TIMESTAMP,
    DELTA,
    KEY_START,
    KEY_END,
    VALUE_START,
    VALUE_END,
    FIRST_HEADER,
    HEADERS_END,
    NUMBERS
};
enum { BLOBS = 4, HEADER_PLACES = 4 };

/* One column of bytes. */
typedef struct {
    const uint8_t *data;
    int64_t size;
} Blob;

/* What `RecordBlock` holds. */
typedef struct {
    const int64_t *numbers;
    int64_t count;
    Blob blobs[BLOBS]; /* keys, values, headers' keys, headers' values */
    const int64_t *headers;
    int64_t header_count;
} Block;

/* A part of a blob; data is NULL for null, and length -2 for a place that is not in the blob. */
typedef struct {
    const uint8_t *data;
    int64_t length;
} Field;

typedef struct {
    uint8_t *at, *end;
} Output;

static inline Field field_at(Blob blob, int64_t start, int64_t end) {
    if (start < 0) {
        return (Field){NULL, -1};
    }
    if (end < start || end > blob.size) {
        return (Field){NULL, -2};
    }
    return (Field){blob.data + start, end - start};
}

/* A header has a key: null is the empty one, as the twin writes it. */
static inline Field header_key(const Block *block, int64_t header) {
    Field key = field_at(block->blobs[2], block->headers[header],
                         block->headers[block->header_count + header]);
    return key.length == -1 ? (Field){NULL, 0} : key;
}

static inline Field header_value(const Block *block, int64_t header) {
    return field_at(block->blobs[3], block->headers[2 * block->header_count + header],
                    block->headers[3 * block->header_count + header]);
}

static inline uint64_t zigzag(int64_t value) {
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static inline int64_t number_size(int64_t value) {
    return (63 - __builtin_clzll(zigzag(value) | 1)) / 7 + 1;
}

static inline int64_t field_size(Field field) {
    return number_size(field.length) + max64(field.length, 0);
}

/* The caller has checked that there is room for `number_size`. */
static inline uint8_t *write_number(uint8_t *at, int64_t value) {
    uint64_t number = zigzag(value);
    for (; number > 0x7F; number >>= 7) {
        *at++ = (uint8_t)(number | 0x80);
    }
    *at++ = (uint8_t)number;
    return at;
}

/* The same for `field_size`. */
static inline uint8_t *write_field(uint8_t *at, Field field) {
    at = write_number(at, field.length);
    if (field.length > 0) {
        memmove(at, field.data, (size_t)field.length); /* a caller may pass one array twice */
        at += field.length;
    }
    return at;
}

/* The bytes of these headers, or -1 when a place is wrong or they are more than `room`. */
static int64_t headers_size(const Block *block, int64_t first, int64_t end, int64_t room) {
    int64_t size = 0;
    for (int64_t header = first; header < end; header++) {
        Field key = header_key(block, header), value = header_value(block, header);
        size += field_size(key) + field_size(value);
        if (key.length < 0 || value.length < -1 || size > room) {
            return -1;
        }
    }
    return size;
}

static bool write_headers(const Block *block, int64_t first, int64_t end, Output *output) {
    for (int64_t header = first; header < end; header++) {
        Field key = header_key(block, header), value = header_value(block, header);
        /* Asked again: it costs little, and whatever another thread does to the arrays, nothing is
           written behind the end. */
        if (output->end - output->at < field_size(key) + field_size(value)) {
            return false;
        }
        output->at = write_field(write_field(output->at, key), value);
    }
    return true;
}

/* Write one record; false when a place is wrong or the room too small. */
static inline bool write_record(const Block *block, int64_t index, Output *output) {
    const int64_t *numbers = block->numbers + index;
    int64_t count = block->count;
    int64_t first = numbers[FIRST_HEADER * count], end = numbers[HEADERS_END * count];
    Field key =
        field_at(block->blobs[0], numbers[KEY_START * count], numbers[KEY_END * count]);
    Field value =
        field_at(block->blobs[1], numbers[VALUE_START * count], numbers[VALUE_END * count]);
    if (key.length < -1 || value.length < -1 || first < 0 || first > end
        || end > block->header_count) {
        return false;
    }
    int64_t timestamp = numbers[TIMESTAMP * count], delta = numbers[DELTA * count];
    int64_t size = 1 + number_size(timestamp) + number_size(delta) + field_size(key)
                   + field_size(value) + number_size(end - first);
    int64_t room = output->end - output->at;
    int64_t of_headers = first < end ? headers_size(block, first, end, room) : 0;
    size += of_headers;
    if (of_headers < 0 || number_size(size) + size > room) {
        return false;
    }
    uint8_t *at = write_number(output->at, size);
    *at++ = 0; /* a record's own attributes: none are defined */
    at = write_number(write_number(at, timestamp), delta);
    at = write_number(write_field(write_field(at, key), value), end - first);
    output->at = at;
    return first == end || write_headers(block, first, end, output);
}

FOR_THIS_PROCESSOR
static bool write_all(const Block *block, Output *output) {
    for (int64_t index = 0; index < block->count; index++) {
        if (!write_record(block, index, output)) {
            return false;
        }
    }
    return true;
}

static bool read_blobs(PyObject *tuple, Buffers *buffers, Blob *blobs) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != BLOBS) {
        PyErr_SetString(PyExc_TypeError, "a tuple of four buffers is wanted");
        return false;
    }
    for (int number = 0; number < BLOBS; number++) {
        Blob *blob = &blobs[number];
        blob->data = buffers_bytes(buffers, PyTuple_GetItem(tuple, number), &blob->size);
        if (blob->data == NULL) {
            return false;
        }
    }
    return true;
}

/* write_records(numbers, blobs, headers, output) -> bytes written */
static PyObject *call_write_records(PyObject *const *args, Buffers *buffers) {
    Block block;
    int64_t room;
    block.numbers =
        buffers_rows(buffers, args[0], sizeof(int64_t), false, NUMBERS, &block.count);
    if (block.numbers == NULL || !read_blobs(args[1], buffers, block.blobs)) {
        return NULL;
    }
    block.headers = buffers_rows(buffers, args[2], sizeof(int64_t), false, HEADER_PLACES,
                                 &block.header_count);
    if (block.headers == NULL) {
        return NULL;
    }
    uint8_t *bytes = buffers_items(buffers, args[3], 1, true, &room);
    if (bytes == NULL) {
        return NULL;
    }
    Output output = {bytes, bytes + room};
    PyThreadState *state = allow_threads(room);
    bool is_done = write_all(&block, &output);
    end_allow_threads(state);
    if (!is_done) {
        return refuse("a place is not in its blob, or the output has too little room");
    }
    return PyLong_FromLongLong(output.at - bytes);
}

KERNEL(write_records, 4)

/* The hash that Java's producers partition by (org.apache.kafka.common.utils.Utils.murmur2). */
static uint32_t murmur2(const uint8_t *data, int64_t length) {
    const uint32_t multiplier = 0x5BD1E995;
    uint32_t state = 0x9747B28C ^ (uint32_t)length;
    for (; length >= 4; data += 4, length -= 4) {
        uint32_t word;
        memcpy(&word, data, sizeof word);
        word *= multiplier;
        word = (word ^ word >> 24) * multiplier;
        state = state * multiplier ^ word;
    }
    if (length > 0) {
        uint32_t tail = data[0];
        tail |= length > 1 ? (uint32_t)data[1] << 8 : 0;
        tail |= length > 2 ? (uint32_t)data[2] << 16 : 0;
        state = (state ^ tail) * multiplier;
    }
    state = (state ^ state >> 13) * multiplier;
    return state ^ state >> 15;
}

/* hash_places(data, starts, ends, hashes) */
static PyObject *call_hash_places(PyObject *const *args, Buffers *buffers) {
    int64_t size, count, counts[2];
    const uint8_t *data = buffers_bytes(buffers, args[0], &size);
    if (data == NULL) {
        return NULL;
    }
    const int64_t *starts = buffers_items(buffers, args[1], sizeof *starts, false, &count);
    if (starts == NULL) {
        return NULL;
    }
    const int64_t *ends = buffers_items(buffers, args[2], sizeof *ends, false, &counts[0]);
    if (ends == NULL) {
        return NULL;
    }
    uint32_t *hashes = buffers_items(buffers, args[3], sizeof *hashes, true, &counts[1]);
    if (hashes == NULL) {
        return NULL;
    }
    if (counts[0] != count || counts[1] != count) {
        return refuse("for each start one end and one hash are wanted");
    }
    bool is_done = true;
    PyThreadState *state = allow_threads(16 * count);
    for (int64_t row = 0; row < count && is_done; row++) {
        int64_t start = starts[row], end = ends[row];
        is_done = start >= 0 && start <= end && end <= size;
        hashes[row] = is_done ? murmur2(data + start, end - start) : 0;
    }
    end_allow_threads(state);
    if (!is_done) {
        return refuse("a place is not in the data");
    }
    Py_RETURN_NONE;
}

KERNEL(hash_places, 4)
