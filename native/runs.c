/* The batches of a run in a WAL object, each behind its length (`wal/layout.py`). */

#include "batches.h"
#include "functions.h"

enum { LENGTH_BYTES = 4 };
enum { RUN_START, RUN_END, RUN_OFFSET_COUNT, RUN_ROWS };

/* The size of the batch behind its length at `position`, or 0 when what is there is none. */
static int64_t batch_bytes(const uint8_t *data, int64_t position, int64_t end, bool verify) {
    if (end - position < LENGTH_BYTES + BATCH_HEADER_BYTES) {
        return 0;
    }
    int64_t size = load_be32(data + position);
    const uint8_t *batch = data + position + LENGTH_BYTES;
    if (size < BATCH_HEADER_BYTES || size > end - position - LENGTH_BYTES
        || (int64_t)(int32_t)load_be32(batch + BATCH_LENGTH_AT) + BATCH_PREFIX_BYTES != size
        || load_be64(batch) != 0 || batch[BATCH_MAGIC_AT] != 2) {
        return 0;
    }
    const uint8_t *summed = batch + BATCH_ATTRIBUTES_AT;
    bool is_right = !verify || crc32c(0, summed, (size_t)(size - BATCH_ATTRIBUTES_AT))
                                   == load_be32(batch + BATCH_CRC_AT);
    return is_right ? size : 0;
}

/* find_batches(data, start, end, verify, table) -> (count, position)

   The position is the end, or where the first batch begins that is wrong or has no room. */
static PyObject *call_find_batches(PyObject *const *args, Buffers *buffers) {
    int64_t bytes, numbers[3], room, count = 0;
    const uint8_t *data = buffers_bytes(buffers, args[0], &bytes);
    if (data == NULL || !read_int64s(args + 1, 3, numbers)) {
        return NULL;
    }
    int64_t *table = buffers_rows(buffers, args[4], sizeof *table, true, RUN_ROWS, &room);
    if (table == NULL) {
        return NULL;
    }
    int64_t position = numbers[0], end = numbers[1];
    if (position < 0 || position > end || end > bytes) {
        return refuse("the run is not in the data");
    }
    PyThreadState *state = allow_threads(end - position);
    while (count < room && position < end) {
        int64_t size = batch_bytes(data, position, end, numbers[2] != 0);
        if (size == 0) {
            break;
        }
        const uint8_t *batch = data + position + LENGTH_BYTES;
        table[RUN_START * room + count] = position + LENGTH_BYTES;
        position += LENGTH_BYTES + size;
        table[RUN_END * room + count] = position;
        int64_t delta = load_be32(batch + BATCH_LAST_DELTA_AT);
        table[RUN_OFFSET_COUNT * room + count] = delta + 1;
        count++;
    }
    end_allow_threads(state);
    return Py_BuildValue("LL", count, position);
}

KERNEL(find_batches, 5)

/* walk_run(data, base_offset, table) -> (count, position)

   The batches of a whole run, each one checked, with offsets that go on from `base_offset`. */
static PyObject *call_walk_run(PyObject *const *args, Buffers *buffers) {
    int64_t bytes, base_offset, room, count = 0, position = 0;
    const uint8_t *data = buffers_bytes(buffers, args[0], &bytes);
    if (data == NULL || !read_int64s(args + 1, 1, &base_offset)) {
        return NULL;
    }
    int64_t *table = buffers_rows(buffers, args[2], sizeof *table, true, TABLE_ROWS, &room);
    if (table == NULL) {
        return NULL;
    }
    PyThreadState *state = allow_threads(bytes);
    while (count < room && position < bytes) {
        int64_t size = batch_bytes(data, position, bytes, true);
        if (size == 0) {
            break;
        }
        int64_t start = position + LENGTH_BYTES;
        position = start + size;
        fill_column(table, room, count, data, start, position, base_offset);
        base_offset = table[NEXT_OFFSET * room + count];
        count++;
    }
    end_allow_threads(state);
    return Py_BuildValue("LL", count, position);
}

KERNEL(walk_run, 3)
