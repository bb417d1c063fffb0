/* Batches as rows of numbers, and Produce requests as rows over those: `records/batch_rows.py` and
   `broker/produce_rows.py` name the same columns. */

#ifndef LAKELOG_ROWS_H
#define LAKELOG_ROWS_H

#include "kernel.h"

/* One batch that was accepted. */
enum {
    ROW_BUFFER,       /* which of the buffers it lies in */
    ROW_START,        /* where in that buffer */
    ROW_LENGTH,       /* its bytes */
    ROW_STREAM,
    ROW_RECORDS,      /* how many; also how many offsets it takes */
    ROW_LEAST_MS,     /* of its timestamps */
    ROW_GREATEST_MS,
    ROW_PRODUCER,     /* -1: not idempotent */
    ROW_EPOCH,
    ROW_SEQUENCE,
    ROW_APPEND_MS,    /* the broker's time that every record gets; -1 with CreateTime */
    ROW_PARTITION,    /* as the client asked for it: only the answer needs these three */
    ROW_TOPIC_START,
    ROW_TOPIC_LENGTH,
    ROW_CODEC,        /* not 0: its records were not looked at */
    ROW_COLUMNS
};

/* One Produce request. */
enum {
    REQUEST_CORRELATION,
    REQUEST_TIMEOUT_MS,
    REQUEST_ROWS_END, /* one more than its last row */
    REQUEST_END,      /* where its frame ends */
    REQUEST_COLUMNS
};

/* A record batch of version 2 (`records/header.py`). */
enum {
    BATCH_LENGTH_AT = 8,
    BATCH_MAGIC_AT = 16,
    BATCH_CRC_AT = 17,
    BATCH_ATTRIBUTES_AT = 21,
    BATCH_LAST_DELTA_AT = 23,
    BATCH_BASE_MS_AT = 27,
    BATCH_MAX_MS_AT = 35,
    BATCH_PRODUCER_AT = 43,
    BATCH_EPOCH_AT = 51,
    BATCH_SEQUENCE_AT = 53,
    BATCH_COUNT_AT = 57,
    BATCH_HEADER_BYTES = 61,
    BATCH_PREFIX_BYTES = 12, /* base offset and length: what the length does not count */
};

enum { CODEC_MASK = 0x07, CODEC_ZSTD = 4, LOG_APPEND_TIME_BIT = 0x08 };

/* Produce (`wire/messages/produce.py`). */
enum { FIRST_PLAIN_VERSION = 3, FIRST_FLEXIBLE_VERSION = 9, FIRST_VERSION_BY_ID = 13 };
enum { FIRST_VERSION_WITH_LOG_START = 5, FIRST_VERSION_WITH_ERRORS = 8 };
enum { TOPIC_ID_BYTES = 16 };

#endif
