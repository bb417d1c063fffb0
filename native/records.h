/* Records of a batch of version 2: their numbers and fields, each checked against the end.

   A position after something is negative when it is not there: ENDED when the data ends before it,
   WRONG when the bytes are no such thing. */

#ifndef LAKELOG_RECORDS_H
#define LAKELOG_RECORDS_H

#include "kernel.h"

/* As `records/kernels.py` has them. */
enum { DONE = 0, INCOMPLETE = 1, MALFORMED = 2, MISPLACED = 3 };
enum { ENDED = -1, WRONG = -2 };
enum { NO_TIMESTAMP_MS = -1 };

/* A zigzag number of up to `bits` (32 or 64) bits; a value that needs more is WRONG. */
static inline int64_t read_number(const uint8_t *data, int64_t position, int64_t end, int bits,
                                  int64_t *value) {
    uint64_t bytes = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (position >= end) {
            return ENDED;
        }
        uint64_t byte = data[position++];
        bytes |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if ((bits == 32 && bytes >> 32) || (shift == 63 && byte > 1)) {
                return WRONG;
            }
            *value = (int64_t)(bytes >> 1) ^ -(int64_t)(bytes & 1);
            return position;
        }
    }
    return WRONG;
}

/* The end of a blob that begins with its length; -1 is null. */
static inline int64_t read_blob(const uint8_t *data, int64_t position, int64_t end,
                                int64_t *length) {
    position = read_number(data, position, end, 32, length);
    if (position < 0 || *length < -1 || *length > end - position) {
        return WRONG;
    }
    return position + max64(*length, 0);
}

typedef struct {
    int64_t delta_ms, offset_delta;
    int64_t key_length, key_end, value_length, value_end; /* a length of -1 is null */
    int64_t headers, header_count;                        /* where they begin, how many */
} Record;

/* Where the record's fields begin, and its end in `end`; negative when it is not all there. */
static inline int64_t read_record_length(const uint8_t *data, int64_t position, int64_t data_end,
                                         int64_t *end) {
    int64_t length;
    int64_t start = read_number(data, position, data_end, 32, &length);
    if (start < 0) {
        return start;
    }
    if (length < 0) {
        return WRONG;
    }
    *end = start + length;
    return length > data_end - start ? ENDED : start;
}

static inline int64_t skip_headers(const uint8_t *data, int64_t position, int64_t end,
                                   int64_t count) {
    for (int64_t number = 0; number < count; number++) {
        int64_t length;
        position = read_blob(data, position, end, &length);
        if (position < 0 || length < 0) { /* a header has a key */
            return WRONG;
        }
        position = read_blob(data, position, end, &length);
        if (position < 0) {
            return WRONG;
        }
    }
    return position;
}

/* Read the fields in [position, end), which they must fill; false when they are no record's. */
static inline bool read_record(const uint8_t *data, int64_t position, int64_t end,
                               Record *record) {
    /* The record's own attributes: one byte that nobody reads, and that must be there. */
    position = read_number(data, position + 1, end, 64, &record->delta_ms);
    if (position < 0) {
        return false;
    }
    position = read_number(data, position, end, 32, &record->offset_delta);
    if (position < 0) {
        return false;
    }
    record->key_end = read_blob(data, position, end, &record->key_length);
    if (record->key_end < 0) {
        return false;
    }
    record->value_end = read_blob(data, record->key_end, end, &record->value_length);
    if (record->value_end < 0) {
        return false;
    }
    position = read_number(data, record->value_end, end, 32, &record->header_count);
    if (position < 0 || record->header_count < 0 || record->header_count > end - position) {
        return false;
    }
    record->headers = position;
    return (record->header_count
                ? skip_headers(data, position, end, record->header_count)
                : position) == end;
}

/* What a topic asks of records: as `kernels.Limits`. */
typedef struct {
    int64_t base_ms, lower_ms, upper_ms, keyed;
} Limits;

/* As `kernels.ScanOutcome`. */
typedef struct {
    int64_t verdict, position, index, least_ms, greatest_ms, bad;
} ScanOutcome;

/* Read the records [index, count) that begin at `position`, as far as the data goes. */
ScanOutcome scan_records(const uint8_t *data, int64_t size, int64_t position, int64_t index,
                         int64_t count, Limits limits);

#endif
