/* Laying out a WAL object: its chunk index, and the batches by stream (`wal/layout.py`).

   Batches that get the broker's time are stamped here, in the copy: what was received stays as it
   was, so that a request which is turned away at the last moment can still take another way. The
   object's checksum is made of the copy too, a step at a time while it is in the processor's cache.
   */

#include <stdlib.h>

#include "functions.h"
#include "rows.h"

enum { ENTRY_BYTES = 44, LENGTH_BYTES = 4, STEP_BYTES = 16 << 10 };

typedef struct {
    const uint8_t *data;
    int64_t size;
} Source;

typedef struct {
    const Source *sources;
    const int64_t *rows, *order;
    uint8_t *out;
    int64_t *starts;
    int64_t source_count, row_count, out_bytes, entries_at, entries_end;
    uint32_t body_crc; /* of the batches with their lengths */
} Layout;

/* What is known of the chunk under way. */
typedef struct {
    int64_t stream, start, records, batches, least_ms, greatest_ms;
} ChunkTotals;

static void store_entry(uint8_t *at, const ChunkTotals *chunk, int64_t end) {
    store_be64(at, (uint64_t)chunk->stream);
    store_be64(at + 8, (uint64_t)chunk->start);
    store_be32(at + 16, (uint32_t)(end - chunk->start));
    store_be32(at + 20, (uint32_t)chunk->records);
    store_be32(at + 24, (uint32_t)chunk->batches);
    store_be64(at + 28, (uint64_t)chunk->least_ms);
    store_be64(at + 36, (uint64_t)chunk->greatest_ms);
}

/* Give every record of a batch the broker's time, as LogAppendTime means it. */
static void stamp(uint8_t *batch, int64_t length, int64_t append_ms) {
    uint16_t attributes = load_be16(batch + BATCH_ATTRIBUTES_AT);
    store_be16(batch + BATCH_ATTRIBUTES_AT, attributes | LOG_APPEND_TIME_BIT);
    store_be64(batch + BATCH_MAX_MS_AT, (uint64_t)append_ms);
    const uint8_t *summed = batch + BATCH_ATTRIBUTES_AT;
    store_be32(batch + BATCH_CRC_AT, crc32c(0, summed, (size_t)(length - BATCH_ATTRIBUTES_AT)));
}

/* The row, if its batch lies in its buffer and fits behind `position`; else NULL. */
static const int64_t *row_at(const Layout *layout, int64_t number, int64_t position) {
    int64_t at = layout->order[number];
    if (at < 0 || at >= layout->row_count) {
        return NULL;
    }
    const int64_t *row = layout->rows + at * ROW_COLUMNS;
    if (row[ROW_BUFFER] < 0 || row[ROW_BUFFER] >= layout->source_count
        || row[ROW_LENGTH] < BATCH_HEADER_BYTES || row[ROW_START] < 0 || row[ROW_RECORDS] < 0
        || row[ROW_RECORDS] > INT32_MAX) { /* what a header can say, so that sums do not overflow */
        return NULL;
    }
    int64_t size = layout->sources[row[ROW_BUFFER]].size;
    bool fits = row[ROW_LENGTH] <= size && row[ROW_START] <= size - row[ROW_LENGTH]
                && row[ROW_LENGTH] <= layout->out_bytes - position - LENGTH_BYTES;
    return fits ? row : NULL;
}

/* Copy the batch of a row behind its length, at `position`. */
static void put_batch(Layout *layout, const int64_t *row, int64_t position) {
    const uint8_t *source = layout->sources[row[ROW_BUFFER]].data + row[ROW_START];
    uint8_t *length = layout->out + position, *batch = length + LENGTH_BYTES;
    int64_t size = row[ROW_LENGTH];
    store_be32(length, (uint32_t)size);
    layout->body_crc = crc32c(layout->body_crc, length, LENGTH_BYTES);
    if (row[ROW_APPEND_MS] >= 0) {
        memcpy(batch, source, (size_t)size);
        stamp(batch, size, row[ROW_APPEND_MS]);
        layout->body_crc = crc32c(layout->body_crc, batch, (size_t)size);
        return;
    }
    for (int64_t done = 0; done < size; done += STEP_BYTES) {
        size_t step = (size_t)min64(STEP_BYTES, size - done);
        memcpy(batch + done, source + done, step);
        layout->body_crc = crc32c(layout->body_crc, batch + done, step);
    }
}

/* The end of the last batch, or -1 when rows, order and room do not fit together. */
static int64_t lay_out(Layout *layout) {
    ChunkTotals chunk = {0};
    int64_t position = layout->entries_end, entry = layout->entries_at;
    for (int64_t number = 0; number < layout->row_count; number++) {
        const int64_t *row = row_at(layout, number, position);
        if (row == NULL) {
            return -1;
        }
        if (number == 0 || row[ROW_STREAM] != chunk.stream) {
            if (number > 0) {
                store_entry(layout->out + entry, &chunk, position);
                entry += ENTRY_BYTES;
            }
            if (entry + ENTRY_BYTES > layout->entries_end) {
                return -1;
            }
            chunk = (ChunkTotals){row[ROW_STREAM], position,  0, 0, row[ROW_LEAST_MS],
                                  row[ROW_GREATEST_MS]};
        }
        put_batch(layout, row, position);
        layout->starts[number] = position;
        position += LENGTH_BYTES + row[ROW_LENGTH];
        chunk.records += row[ROW_RECORDS];
        chunk.batches++;
        chunk.least_ms = min64(chunk.least_ms, row[ROW_LEAST_MS]);
        chunk.greatest_ms = max64(chunk.greatest_ms, row[ROW_GREATEST_MS]);
    }
    store_entry(layout->out + entry, &chunk, position);
    return entry + ENTRY_BYTES == layout->entries_end ? position : -1;
}

/* The buffers of a list, held in `views` until `release_sources`; NULL with a Python error. */
static Source *take_sources(PyObject *list, Py_buffer **views, int64_t *count) {
    *count = 0;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "a list of buffers is wanted");
        return NULL;
    }
    Py_ssize_t wanted = PyList_Size(list);
    Source *sources = malloc((size_t)(wanted + 1) * sizeof *sources);
    *views = malloc((size_t)(wanted + 1) * sizeof **views);
    if (sources == NULL || *views == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (; *count < wanted; ++*count) {
        Py_buffer *view = *views + *count;
        if (PyObject_GetBuffer(PyList_GetItem(list, *count), view, PyBUF_SIMPLE) < 0) {
            goto failed;
        }
        sources[*count] = (Source){view->buf, view->len};
    }
    return sources;
failed:
    free(sources);
    return NULL;
}

static void release_sources(Source *sources, Py_buffer *views, int64_t count) {
    for (int64_t number = 0; number < count; number++) {
        PyBuffer_Release(views + number);
    }
    free(views);
    free(sources);
}

/* The arrays of a call, and whether their sizes fit together. */
static bool read_layout(Buffers *buffers, PyObject *const *args, Layout *layout) {
    int64_t numbers[2], rows, starts;
    if (!read_int64s(args + 5, 2, numbers)) {
        return false;
    }
    layout->rows = buffers_items(buffers, args[1], 8, false, &rows);
    if (layout->rows == NULL) {
        return false;
    }
    layout->order = buffers_items(buffers, args[2], 8, false, &layout->row_count);
    if (layout->order == NULL) {
        return false;
    }
    layout->out = buffers_items(buffers, args[3], 1, true, &layout->out_bytes);
    if (layout->out == NULL) {
        return false;
    }
    layout->starts = buffers_items(buffers, args[4], 8, true, &starts);
    if (layout->starts == NULL) {
        return false;
    }
    layout->entries_at = numbers[0];
    layout->entries_end = numbers[1];
    if (rows != layout->row_count * ROW_COLUMNS || starts != layout->row_count
        || layout->row_count == 0 || numbers[0] < 0 || numbers[0] > numbers[1]
        || numbers[1] > layout->out_bytes) {
        refuse("rows, order, starts and room do not fit together");
        return false;
    }
    return true;
}

/* lay_out(buffers, rows, order, out, starts, entries_at, entries_end) -> (end, crc)

   The checksum is that of everything before the end, also of what stood before the entries. */
static PyObject *call_lay_out(PyObject *const *args, Buffers *buffers) {
    Layout layout = {0};
    Py_buffer *views = NULL;
    int64_t end = -1;
    uint32_t crc = 0;
    Source *sources = take_sources(args[0], &views, &layout.source_count);
    if (sources != NULL && read_layout(buffers, args, &layout)) {
        layout.sources = sources;
        PyThreadState *state = allow_threads(layout.out_bytes);
        end = lay_out(&layout);
        if (end >= 0) {
            size_t head_bytes = (size_t)layout.entries_end;
            crc = crc32c_joined(crc32c(0, layout.out, head_bytes), layout.body_crc,
                                (size_t)end - head_bytes);
        }
        end_allow_threads(state);
        if (end < 0) {
            refuse("a row does not lie in its buffer or has no room");
        }
    }
    release_sources(sources, views, layout.source_count);
    return end < 0 ? NULL : Py_BuildValue("LI", end, crc);
}

KERNEL(lay_out, 7)
