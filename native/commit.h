/* The columns of a Commit: `domain/events.py` names them in the same order. */

#ifndef LAKELOG_COMMIT_H
#define LAKELOG_COMMIT_H

#include "kernel.h"

/* As they lie in a record, so at any address. */
typedef struct {
    const uint8_t *streams, *byte_starts, *byte_lengths, *counts, *times, *producers, *epochs,
        *sequences;
    int64_t batches;
} CommitColumns;

/* The columns out of their tuple; false with a Python error. */
bool read_commit(Buffers *buffers, PyObject *tuple, CommitColumns *commit);

static inline int64_t long_at(const uint8_t *column, int64_t number) {
    return (int64_t)load_64(column + 8 * number);
}

static inline uint32_t uint_at(const uint8_t *column, int64_t number) {
    uint32_t value;
    memcpy(&value, column + 4 * number, sizeof value);
    return value;
}

static inline int64_t sequence_at(const CommitColumns *commit, int64_t number) {
    return (int32_t)uint_at(commit->sequences, number);
}

static inline int16_t epoch_at(const CommitColumns *commit, int64_t number) {
    int16_t value;
    memcpy(&value, commit->epochs + 2 * number, sizeof value);
    return value;
}

#endif
