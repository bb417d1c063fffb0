/* Plain Produce requests as rows (`broker/produce_rows.py`).

   A request is plain when nothing in it needs a second look: acks 1 or all, no transaction, topics
   that the table knows, and one good batch for each partition, none of them twice. Of compressed
   batches everything but the records is checked here. The kernel never refuses: at the first
   request that is anything else it stops, and that one takes the ordinary way, where every refusal
   has its code and its text. */

#include "cursor.h"
#include "functions.h"
#include "records.h"
#include "rows.h"
#include "topics.h"

/* Why the kernel stopped. */
enum {
    NEED_MORE,     /* what is left is not a whole frame */
    NOT_PLAIN,     /* the next request takes the ordinary way */
    UNKNOWN_TOPIC, /* the next request names a topic that is not in the table */
    NEXT_GROUP,    /* the next request belongs into the next call: no room, or another kind */
};

typedef struct {
    const uint8_t *data;
    int64_t version, now_ms, producers_end, frame_bytes_max, slow_bytes;
    TopicTable table;
    int64_t *requests, *rows;
    int64_t request_max, row_max;
    int64_t request_count, row_count;
    int64_t serial; /* of the request under way: its mark */
    int64_t topic_start, topic_length; /* of the topic that is unknown */
} Parse;

static int64_t saturating_sub(int64_t value, int64_t less) {
    int64_t result;
    return __builtin_sub_overflow(value, less, &result) ? (less > 0 ? INT64_MIN : INT64_MAX)
                                                        : result;
}

static int64_t saturating_add(int64_t value, int64_t more) {
    int64_t result;
    return __builtin_add_overflow(value, more, &result) ? (more > 0 ? INT64_MAX : INT64_MIN)
                                                        : result;
}

/* What the header of a batch says, if it is one that needs no second look. */
static bool is_plain_header(const Parse *parse, const int64_t *topic, const uint8_t *batch,
                            int64_t length) {
    if (length < BATCH_HEADER_BYTES || length > topic[TOPIC_BYTES_MAX]
        || load_be64(batch) != 0 || batch[BATCH_MAGIC_AT] != 2
        || (int64_t)(int32_t)load_be32(batch + BATCH_LENGTH_AT) + BATCH_PREFIX_BYTES != length) {
        return false;
    }
    int64_t attributes = load_be16(batch + BATCH_ATTRIBUTES_AT);
    if (attributes > CODEC_ZSTD || (attributes != 0 && length >= parse->slow_bytes)) {
        return false;
    }
    int64_t records = (int32_t)load_be32(batch + BATCH_COUNT_AT);
    if (records <= 0 || records != (int64_t)(int32_t)load_be32(batch + BATCH_LAST_DELTA_AT) + 1) {
        return false;
    }
    int64_t producer = (int64_t)load_be64(batch + BATCH_PRODUCER_AT);
    if (producer >= 0) {
        return producer < parse->producers_end
               && (int16_t)load_be16(batch + BATCH_EPOCH_AT) >= 0
               && (int32_t)load_be32(batch + BATCH_SEQUENCE_AT) >= 0;
    }
    return producer == -1;
}

/* Check the records of an uncompressed batch, and note its timestamps. */
static bool has_plain_records(const Parse *parse, const int64_t *topic, const uint8_t *batch,
                              int64_t length, int64_t *row) {
    bool appended = topic[TOPIC_APPEND_TIME] != 0;
    Limits limits = {
        .base_ms = (int64_t)load_be64(batch + BATCH_BASE_MS_AT),
        .lower_ms = appended ? INT64_MIN : saturating_sub(parse->now_ms, topic[TOPIC_BEFORE_MS]),
        .upper_ms = appended ? INT64_MAX : saturating_add(parse->now_ms, topic[TOPIC_AFTER_MS]),
        .keyed = topic[TOPIC_KEYED],
    };
    int64_t size = length - BATCH_HEADER_BYTES;
    ScanOutcome outcome =
        scan_records(batch + BATCH_HEADER_BYTES, size, 0, 0, row[ROW_RECORDS], limits);
    if (outcome.verdict != DONE || outcome.position != size || outcome.bad != 0) {
        return false;
    }
    if (!appended) {
        row[ROW_LEAST_MS] = outcome.least_ms;
        row[ROW_GREATEST_MS] = max64(outcome.greatest_ms, NO_TIMESTAMP_MS);
        /* A header that its records contradict is written anew: not here. */
        return row[ROW_GREATEST_MS] == (int64_t)load_be64(batch + BATCH_MAX_MS_AT);
    }
    return true;
}

static bool take_batch(Parse *parse, const int64_t *topic, int64_t start, int64_t length,
                       int64_t *row) {
    const uint8_t *batch = parse->data + start;
    if (!is_plain_header(parse, topic, batch, length)) {
        return false;
    }
    const uint8_t *summed = batch + BATCH_ATTRIBUTES_AT;
    if (crc32c(0, summed, (size_t)(length - BATCH_ATTRIBUTES_AT))
        != load_be32(batch + BATCH_CRC_AT)) {
        return false;
    }
    row[ROW_BUFFER] = 0;
    row[ROW_START] = start;
    row[ROW_LENGTH] = length;
    row[ROW_RECORDS] = (int32_t)load_be32(batch + BATCH_COUNT_AT);
    row[ROW_PRODUCER] = (int64_t)load_be64(batch + BATCH_PRODUCER_AT);
    row[ROW_EPOCH] = (int16_t)load_be16(batch + BATCH_EPOCH_AT);
    row[ROW_SEQUENCE] = (int32_t)load_be32(batch + BATCH_SEQUENCE_AT);
    row[ROW_CODEC] = load_be16(summed) & CODEC_MASK;
    row[ROW_APPEND_MS] = NO_TIMESTAMP_MS;
    row[ROW_LEAST_MS] = row[ROW_GREATEST_MS] = NO_TIMESTAMP_MS;
    if (topic[TOPIC_APPEND_TIME]) {
        row[ROW_APPEND_MS] = row[ROW_LEAST_MS] = row[ROW_GREATEST_MS] = parse->now_ms;
    }
    return row[ROW_CODEC] != 0 || has_plain_records(parse, topic, batch, length, row);
}

static int take_partition(Parse *parse, Cursor *cursor, const int64_t *topic, bool flexible) {
    if (parse->row_count == parse->row_max) {
        return parse->request_count > 0 ? NEXT_GROUP : NOT_PLAIN;
    }
    int64_t index = take_int32(cursor);
    int64_t length = flexible ? take_compact(cursor) : take_int32(cursor);
    int64_t start = cursor->at;
    if (!skip(cursor, length) || (flexible && take_int8(cursor) != 0) || cursor->short_of) {
        return NOT_PLAIN;
    }
    int64_t place = topic[TOPIC_FIRST_STREAM] + index;
    if (index < 0 || index >= topic[TOPIC_PARTITIONS] || topic[TOPIC_FIRST_STREAM] < 0
        || place >= parse->table.stream_count || parse->table.marks[place] == parse->serial) {
        return NOT_PLAIN;
    }
    int64_t *row = parse->rows + parse->row_count * ROW_COLUMNS;
    if (!take_batch(parse, topic, start, length, row)) {
        return NOT_PLAIN;
    }
    parse->table.marks[place] = parse->serial;
    row[ROW_STREAM] = parse->table.streams[place];
    row[ROW_PARTITION] = index;
    row[ROW_TOPIC_START] = parse->topic_start;
    row[ROW_TOPIC_LENGTH] = parse->topic_length;
    parse->row_count++;
    return NEED_MORE;
}

static int take_topic(Parse *parse, Cursor *cursor, bool flexible) {
    bool by_id = parse->version >= FIRST_VERSION_BY_ID;
    int64_t length = by_id      ? TOPIC_ID_BYTES
                     : flexible ? take_compact(cursor)
                                : take_int16(cursor);
    parse->topic_start = cursor->at;
    parse->topic_length = length;
    if (length <= 0 || !skip(cursor, length)) {
        return NOT_PLAIN;
    }
    const int64_t *topic =
        find_topic(&parse->table, parse->data + parse->topic_start, length);
    if (topic == NULL) {
        return UNKNOWN_TOPIC;
    }
    int64_t count = flexible ? take_compact(cursor) : take_int32(cursor);
    if (count <= 0) {
        return NOT_PLAIN;
    }
    for (int64_t number = 0; number < count; number++) {
        int why = take_partition(parse, cursor, topic, flexible);
        if (why != NEED_MORE) {
            return why;
        }
    }
    return flexible && take_int8(cursor) != 0 ? NOT_PLAIN : NEED_MORE;
}

/* A whole request, which ends where its frame ends. NEED_MORE: it is a row of `requests` now. */
static int take_request(Parse *parse, Cursor *cursor) {
    bool flexible = parse->version >= FIRST_FLEXIBLE_VERSION;
    skip(cursor, 4); /* API key and version, which were looked at */
    int64_t correlation = take_int32(cursor);
    int64_t length = take_int16(cursor);
    if (length < -1 || !skip(cursor, max64(length, 0)) || (flexible && take_int8(cursor) != 0)) {
        return NOT_PLAIN;
    }
    int64_t transactional = flexible ? take_compact(cursor) : take_int16(cursor);
    int64_t acks = take_int16(cursor);
    int64_t timeout_ms = take_int32(cursor);
    int64_t count = flexible ? take_compact(cursor) : take_int32(cursor);
    if (cursor->short_of || transactional != -1 || (acks != -1 && acks != 1) || count <= 0) {
        return NOT_PLAIN;
    }
    int64_t *request = parse->requests + parse->request_count * REQUEST_COLUMNS;
    /* One answer time for all requests of a call. */
    if (parse->request_count > 0 && parse->requests[REQUEST_TIMEOUT_MS] != timeout_ms) {
        return NEXT_GROUP;
    }
    parse->serial++;
    for (int64_t number = 0; number < count; number++) {
        int why = take_topic(parse, cursor, flexible);
        if (why != NEED_MORE) {
            return why;
        }
    }
    if (flexible && take_int8(cursor) != 0) {
        return NOT_PLAIN;
    }
    if (cursor->short_of || cursor->at != cursor->end) {
        return NOT_PLAIN;
    }
    request[REQUEST_CORRELATION] = correlation;
    request[REQUEST_TIMEOUT_MS] = timeout_ms;
    request[REQUEST_ROWS_END] = parse->row_count;
    request[REQUEST_END] = cursor->end;
    return NEED_MORE;
}

/* Take requests from the frames in [position, end) until one is not plain or not whole. */
static int take_frames(Parse *parse, int64_t *position, int64_t end, bool bare) {
    while (*position < end) {
        Cursor cursor = {parse->data, *position, end, false};
        int64_t size = bare ? end - *position : take_int32(&cursor);
        if (cursor.short_of) {
            return NEED_MORE;
        }
        if (size < 8 || size > parse->frame_bytes_max) {
            return NOT_PLAIN;
        }
        if (size > end - cursor.at) {
            return NEED_MORE;
        }
        cursor.end = cursor.at + size;
        if (load_be16(parse->data + cursor.at) != 0) { /* the key of Produce */
            return NOT_PLAIN;
        }
        int64_t version = (int16_t)load_be16(parse->data + cursor.at + 2);
        if (version < FIRST_PLAIN_VERSION || version > FIRST_VERSION_BY_ID) {
            return NOT_PLAIN;
        }
        if (version != parse->version || parse->request_count == parse->request_max) {
            return parse->request_count > 0 ? NEXT_GROUP : NOT_PLAIN;
        }
        int64_t rows_before = parse->row_count;
        int why = take_request(parse, &cursor);
        if (why != NEED_MORE) {
            parse->row_count = rows_before;
            return why;
        }
        parse->request_count++;
        *position = cursor.end;
    }
    return NEED_MORE;
}

/* parse_produce(data, (start, end, bare), table, (version, now_ms, producers_end,
   frame_bytes_max, slow_bytes, serial), requests, rows)
   -> (requests, rows, position, why, topic_start, topic_length, serial) */
static PyObject *call_parse_produce(PyObject *const *args, Buffers *buffers) {
    Parse parse = {0};
    int64_t size, span[3], rules[6];
    parse.data = buffers_bytes(buffers, args[0], &size);
    if (parse.data == NULL || !read_tuple(args[1], 3, span)
        || !read_table(buffers, args[2], &parse.table) || !read_tuple(args[3], 6, rules)) {
        return NULL;
    }
    parse.requests = buffers_items(buffers, args[4], 8, true, &parse.request_max);
    parse.rows = parse.requests ? buffers_items(buffers, args[5], 8, true, &parse.row_max) : NULL;
    if (parse.rows == NULL) {
        return NULL;
    }
    if (span[0] < 0 || span[0] > span[1] || span[1] > size) {
        return refuse("the span is not in the data");
    }
    parse.request_max /= REQUEST_COLUMNS;
    parse.row_max /= ROW_COLUMNS;
    parse.version = rules[0];
    parse.now_ms = rules[1];
    parse.producers_end = rules[2];
    parse.frame_bytes_max = rules[3];
    parse.slow_bytes = rules[4];
    parse.serial = rules[5];
    int64_t position = span[0];
    PyThreadState *state = allow_threads(span[1] - span[0]);
    int why = take_frames(&parse, &position, span[1], span[2] != 0);
    end_allow_threads(state);
    return Py_BuildValue("LLLiLLL", parse.request_count, parse.row_count, position, why,
                         parse.topic_start, parse.topic_length, parse.serial);
}

KERNEL(parse_produce, 6)
