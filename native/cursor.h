/* Reading a message of Kafka's protocol from its start to its end. */

#ifndef LAKELOG_CURSOR_H
#define LAKELOG_CURSOR_H

#include "kernel.h"

/* Bytes that are left of a message; once too few were left `short_of` stays true. */
typedef struct {
    const uint8_t *data;
    int64_t at, end;
    bool short_of;
} Cursor;

static inline bool has(Cursor *cursor, int64_t size) {
    if (size < 0 || size > cursor->end - cursor->at) {
        cursor->short_of = true;
    }
    return !cursor->short_of;
}

static inline int64_t take_int8(Cursor *cursor) {
    return has(cursor, 1) ? (int8_t)cursor->data[cursor->at++] : 0;
}

static inline int64_t take_int16(Cursor *cursor) {
    if (!has(cursor, 2)) {
        return 0;
    }
    cursor->at += 2;
    return (int16_t)load_be16(cursor->data + cursor->at - 2);
}

static inline int64_t take_int32(Cursor *cursor) {
    if (!has(cursor, 4)) {
        return 0;
    }
    cursor->at += 4;
    return (int32_t)load_be32(cursor->data + cursor->at - 4);
}

/* A compact length or count: one less than the number that is written; -1 is null. A number that
   is written longer than it needs is not plain. */
static inline int64_t take_compact(Cursor *cursor) {
    uint64_t value = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        uint64_t byte = (uint8_t)take_int8(cursor);
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (byte == 0 && shift > 0) {
                break;
            }
            return (int64_t)value - 1;
        }
    }
    cursor->short_of = true;
    return -1;
}

static inline bool skip(Cursor *cursor, int64_t size) {
    if (!has(cursor, size)) {
        return false;
    }
    cursor->at += size;
    return true;
}

#endif
