/* The answers of plain Produce requests, one behind the other (`wire/messages/produce.py`).

   What an answer holds follows its request: the same topics and partitions in the same order. Only
   what is the same for all versions' message codec is written here; anything with a text in it is
   encoded by the codec itself. */

#include "functions.h"
#include "rows.h"

/* Where answers go; without `data` it only counts. */
typedef struct {
    uint8_t *data;
    int64_t at;
} Writer;

static void put(Writer *writer, const void *bytes, int64_t size) {
    if (writer->data != NULL) {
        memcpy(writer->data + writer->at, bytes, (size_t)size);
    }
    writer->at += size;
}

static void put_int8(Writer *writer, int64_t value) {
    uint8_t byte = (uint8_t)value;
    put(writer, &byte, 1);
}

static void put_int16(Writer *writer, int64_t value) {
    uint8_t bytes[2];
    store_be16(bytes, (uint16_t)value);
    put(writer, bytes, sizeof bytes);
}

static void put_int32(Writer *writer, int64_t value) {
    uint8_t bytes[4];
    store_be32(bytes, (uint32_t)value);
    put(writer, bytes, sizeof bytes);
}

static void put_int64(Writer *writer, int64_t value) {
    uint8_t bytes[8];
    store_be64(bytes, (uint64_t)value);
    put(writer, bytes, sizeof bytes);
}

/* A length or count, in the way of the version. */
static void put_count(Writer *writer, int64_t count, bool flexible) {
    if (!flexible) {
        put_int32(writer, count);
        return;
    }
    uint64_t left = (uint64_t)count + 1;
    for (; left >= 0x80; left >>= 7) {
        put_int8(writer, (int64_t)(left & 0x7F) | 0x80);
    }
    put_int8(writer, (int64_t)left);
}

typedef struct {
    int64_t version;
    const uint8_t *data; /* of the requests: topics are named as they were */
    const int64_t *requests, *rows;
    const int16_t *codes;
    const int64_t *offsets, *times, *starts;
    int64_t data_bytes, request_count, row_count;
} Answers;

static void put_partition(Writer *writer, const Answers *answers, int64_t number) {
    bool flexible = answers->version >= FIRST_FLEXIBLE_VERSION;
    put_int32(writer, answers->rows[number * ROW_COLUMNS + ROW_PARTITION]);
    put_int16(writer, answers->codes[number]);
    put_int64(writer, answers->offsets[number]);
    put_int64(writer, answers->times[number]);
    if (answers->version >= FIRST_VERSION_WITH_LOG_START) {
        put_int64(writer, answers->starts[number]);
    }
    if (answers->version >= FIRST_VERSION_WITH_ERRORS) {
        put_count(writer, 0, flexible); /* no record errors */
        if (flexible) {
            put_int8(writer, 0); /* no error message */
            put_int8(writer, 0); /* no tagged fields */
        } else {
            put_int16(writer, -1);
        }
    }
}

/* The topic that begins with row `first`; returns the row behind it, or -1. */
static int64_t put_topic(Writer *writer, const Answers *answers, int64_t first, int64_t end) {
    const int64_t *row = answers->rows + first * ROW_COLUMNS;
    int64_t start = row[ROW_TOPIC_START], length = row[ROW_TOPIC_LENGTH];
    bool flexible = answers->version >= FIRST_FLEXIBLE_VERSION;
    if (start < 0 || length < 0 || length > answers->data_bytes
        || start > answers->data_bytes - length) {
        return -1;
    }
    int64_t last = first + 1;
    while (last < end && answers->rows[last * ROW_COLUMNS + ROW_TOPIC_START] == start) {
        last++;
    }
    if (answers->version < FIRST_FLEXIBLE_VERSION) {
        put_int16(writer, length);
    } else if (answers->version < FIRST_VERSION_BY_ID) {
        put_count(writer, length, true);
    }
    put(writer, answers->data + start, length);
    put_count(writer, last - first, flexible);
    for (int64_t number = first; number < last; number++) {
        put_partition(writer, answers, number);
    }
    if (flexible) {
        put_int8(writer, 0);
    }
    return last;
}

static int64_t count_topics(const Answers *answers, int64_t first, int64_t end) {
    int64_t topics = 0, before = -1;
    for (int64_t number = first; number < end; number++) {
        int64_t start = answers->rows[number * ROW_COLUMNS + ROW_TOPIC_START];
        topics += number == first || start != before;
        before = start;
    }
    return topics;
}

/* Write all answers; false when the rows and requests do not fit together. */
static bool put_answers(Writer *writer, const Answers *answers) {
    bool flexible = answers->version >= FIRST_FLEXIBLE_VERSION;
    int64_t first = 0;
    for (int64_t number = 0; number < answers->request_count; number++) {
        const int64_t *request = answers->requests + number * REQUEST_COLUMNS;
        int64_t end = request[REQUEST_ROWS_END], began = writer->at;
        if (end <= first || end > answers->row_count) {
            return false;
        }
        put_int32(writer, 0); /* the size, once it is known */
        put_int32(writer, request[REQUEST_CORRELATION]);
        if (flexible) {
            put_int8(writer, 0); /* no tagged fields in the header */
        }
        put_count(writer, count_topics(answers, first, end), flexible);
        while (first < end) {
            first = put_topic(writer, answers, first, end);
            if (first < 0) {
                return false;
            }
        }
        put_int32(writer, 0); /* no throttling */
        if (flexible) {
            put_int8(writer, 0);
        }
        if (writer->data != NULL) {
            store_be32(writer->data + began, (uint32_t)(writer->at - began - 4));
        }
    }
    return first == answers->row_count;
}

static bool read_answers(Buffers *buffers, PyObject *const *args, Answers *answers) {
    int64_t counts[6];
    const void *arrays[6];
    static const int itemsizes[6] = {8, 8, 2, 8, 8, 8};
    if (!read_int64s(args, 1, &answers->version)) {
        return false;
    }
    answers->data = buffers_bytes(buffers, args[1], &answers->data_bytes);
    if (answers->data == NULL) {
        return false;
    }
    for (int number = 0; number < 6; number++) {
        arrays[number] =
            buffers_items(buffers, args[2 + number], itemsizes[number], false, &counts[number]);
        if (arrays[number] == NULL) {
            return false;
        }
    }
    answers->requests = arrays[0];
    answers->rows = arrays[1];
    answers->codes = arrays[2];
    answers->offsets = arrays[3];
    answers->times = arrays[4];
    answers->starts = arrays[5];
    answers->request_count = counts[0] / REQUEST_COLUMNS;
    answers->row_count = counts[1] / ROW_COLUMNS;
    for (int number = 2; number < 6; number++) {
        if (counts[number] != answers->row_count) {
            refuse("there is not one outcome for each row");
            return false;
        }
    }
    return true;
}

/* answer_produce(version, data, requests, rows, codes, offsets, times, starts) -> bytes */
static PyObject *call_answer_produce(PyObject *const *args, Buffers *buffers) {
    Answers answers = {0};
    Writer counted = {NULL, 0};
    if (!read_answers(buffers, args, &answers)) {
        return NULL;
    }
    if (!put_answers(&counted, &answers)) {
        return refuse("requests, rows and topics do not fit together");
    }
    PyObject *encoded = PyBytes_FromStringAndSize(NULL, counted.at);
    if (encoded != NULL) {
        Writer writer = {(uint8_t *)PyBytes_AsString(encoded), 0};
        put_answers(&writer, &answers);
    }
    return encoded;
}

KERNEL(answer_produce, 8)
