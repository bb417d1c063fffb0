/* Batches as the columns of `FetchedBatches.table` (`records/fetched_batches.py`). */

#ifndef LAKELOG_BATCHES_H
#define LAKELOG_BATCHES_H

#include "rows.h"

enum {
    START,
    END,
    BASE_OFFSET,
    NEXT_OFFSET,
    RECORD_COUNT,
    ATTRIBUTES,
    BASE_MS,
    MAX_MS,
    PRODUCER_ID,
    CRC,
    TABLE_ROWS
};

/* Fill the column of a batch that lies whole at `start` of the data, and whose offsets begin at
   `base_offset`; the table has `room` columns. */
static inline void fill_column(int64_t *table, int64_t room, int64_t number, const uint8_t *data,
                               int64_t start, int64_t end, int64_t base_offset) {
    const uint8_t *batch = data + start;
    int64_t delta = (int32_t)load_be32(batch + BATCH_LAST_DELTA_AT);
    int64_t *column = table + number;
    column[START * room] = start;
    column[END * room] = end;
    column[BASE_OFFSET * room] = base_offset;
    column[NEXT_OFFSET * room] = wrapping_add(base_offset, delta + 1);
    column[RECORD_COUNT * room] = (int32_t)load_be32(batch + BATCH_COUNT_AT);
    column[ATTRIBUTES * room] = (int16_t)load_be16(batch + BATCH_ATTRIBUTES_AT);
    column[BASE_MS * room] = (int64_t)load_be64(batch + BATCH_BASE_MS_AT);
    column[MAX_MS * room] = (int64_t)load_be64(batch + BATCH_MAX_MS_AT);
    column[PRODUCER_ID * room] = (int64_t)load_be64(batch + BATCH_PRODUCER_AT);
    column[CRC * room] = load_be32(batch + BATCH_CRC_AT);
}

#endif
