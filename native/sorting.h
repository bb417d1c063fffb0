/* Timestamps searched and sorted, for ordering.c. */

#ifndef LAKELOG_SORTING_H
#define LAKELOG_SORTING_H

#include "kernel.h"

#include <stdlib.h>

/* The rows [start, end) of sorted timestamps. */
typedef struct {
    const int64_t *timestamps;
    int64_t start, end;
} Run;

/* The first place in a run whose timestamp is not below this one. */
static inline int64_t count_below(Run run, int64_t timestamp_ms) {
    /* In steps that double: what is wanted is mostly near the start, and memory far off is slow. */
    int64_t start = run.start, step = 1;
    while (step <= run.end - start && run.timestamps[start + step - 1] < timestamp_ms) {
        start += step;
        step += step;
    }
    int64_t end = min64(run.end, start + step - 1);
    while (start < end) {
        int64_t middle = (start + end) / 2;
        if (run.timestamps[middle] < timestamp_ms) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    return start;
}

/* The first place in a run whose timestamp is above this one. */
static inline int64_t count_until(Run run, int64_t timestamp_ms) {
    return timestamp_ms == INT64_MAX ? run.end : count_below(run, timestamp_ms + 1);
}

/* How much room `last_timestamp` needs for each run. */
enum { SCRATCH_ITEMS = 3 };

/* The timestamp of the last of the least `rows_max` rows of all runs; there are more than so
   many. */
int64_t last_timestamp(const Run *runs, int64_t count, int64_t rows_max, int64_t *scratch);

static inline int bit_length(uint64_t value) {
    return value == 0 ? 0 : 64 - __builtin_clzll(value);
}

/* The words sorted by `bits` bits from `shift` up; equal ones stay as they stand. They end up in
   one of the two places, which is returned. */
uint64_t *sort_words(uint64_t *words, uint64_t *spare, int64_t count, int shift, int bits);

#endif
