/* The batches of a Fetch answer, and their records as columns (`records/fetched_batches.py` and
   `records/fetched.py`).

   Numbers are read out of eight bytes at once. Every such load is within the data: a record is read
   quickly where eight bytes are left for each load and its numbers are short, and else byte by byte
   with a test at every one. */

#include "batches.h"
#include "functions.h"
#include "records.h"
#include "views.h"

enum { LENGTH_PREFIX_BYTES = 12, BATCH_LENGTH_MIN = 49 };

/* Fill the table as far as it reaches; count and position say where the walk ended. */
static int walk(const uint8_t *data, int64_t size, int64_t *table, int64_t room, int64_t *count,
                int64_t *position) {
    int64_t next_offset = 0;
    /* Whether a batch is whole is asked as late as `header.first_batch_bytes` asks it. */
    while (*count < room && size - *position >= LENGTH_PREFIX_BYTES) {
        const uint8_t *batch = data + *position;
        int64_t length = (int32_t)load_be32(batch + 8);
        if (length < 14) {
            return MALFORMED;
        }
        if (size - *position <= 16) {
            break;
        }
        uint8_t magic = batch[16];
        int64_t end = *position + length + LENGTH_PREFIX_BYTES;
        if (magic > 2 || (end <= size && (magic < 2 || length < BATCH_LENGTH_MIN))) {
            return MALFORMED;
        }
        if (end > size) {
            break;
        }
        int64_t base_offset = (int64_t)load_be64(batch);
        int64_t delta = (int32_t)load_be32(batch + 23);
        if (base_offset < next_offset || delta < 0 || base_offset > INT64_MAX - 1 - delta) {
            return MALFORMED;
        }
        next_offset = base_offset + delta + 1;
        fill_column(table, room, *count, data, *position, end, base_offset);
        *position = end;
        (*count)++;
    }
    return DONE;
}

/* walk_batches(data, table) -> verdict, count, position */
static PyObject *call_walk_batches(PyObject *const *args, Buffers *buffers) {
    int64_t size, room, count = 0, position = 0;
    const uint8_t *data = buffers_bytes(buffers, args[0], &size);
    if (data == NULL) {
        return NULL;
    }
    int64_t *table = buffers_rows(buffers, args[1], sizeof *table, true, TABLE_ROWS, &room);
    if (table == NULL) {
        return NULL;
    }
    PyThreadState *state = allow_threads(64 * room);
    int verdict = walk(data, size, table, room, &count, &position);
    end_allow_threads(state);
    return Py_BuildValue("iLL", verdict, count, position);
}

KERNEL(walk_batches, 2)

/* A record before its headers; a length of -1 is null. */
typedef struct {
    int64_t end; /* or WRONG */
    int64_t delta_ms, delta;
    int64_t key_start, key_length, value_start, value_length;
} Fields;

/* The number of at most four bytes that a word begins with, and its bits (or 0). */
static inline int64_t short_number(uint64_t word, int *bits) {
    uint64_t value = word & 0x7F;
    *bits = 8;
    if (word & 0x80) {
        value |= word >> 1 & 0x7F << 7;
        *bits = 16;
        if (word & 0x8000) {
            value |= word >> 2 & 0x7F << 14;
            *bits = 24;
            if (word & 0x800000) {
                value |= word >> 3 & 0x7F << 21;
                *bits = word & 0x80000000 ? 0 : 32;
            }
        }
    }
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* The fields, or WRONG for whatever takes more care, right or wrong. */
static inline Fields read_quickly(const uint8_t *data, int64_t size, int64_t position,
                                  int64_t section_end) {
    const Fields slow = {.end = WRONG};
    Fields fields;
    int used, bits;
    if (size - position < 16) {
        return slow;
    }
    uint64_t word = load_64(data + position);
    int64_t length = short_number(word, &bits);
    fields.end = position + (bits >> 3) + length;
    if (bits == 0 || length < 0 || fields.end > section_end) {
        return slow;
    }
    used = bits + 8; /* the record's own attributes are one byte */
    fields.delta_ms = short_number(word >> used, &bits);
    if (bits == 0 || used + bits > 64) {
        return slow;
    }
    position += (used + bits) >> 3;
    word = load_64(data + position);
    fields.delta = short_number(word, &used);
    fields.key_length = short_number(word >> used, &bits);
    fields.key_start = position + ((used + bits) >> 3);
    position = fields.key_start + max64(fields.key_length, 0);
    if (used == 0 || bits == 0 || fields.key_length < -1 || size - position < 8) {
        return slow;
    }
    fields.value_length = short_number(load_64(data + position), &bits);
    fields.value_start = position + (bits >> 3);
    return bits == 0 || fields.value_length < -1 ? slow : fields;
}

static Fields read_carefully(const uint8_t *data, int64_t position, int64_t section_end) {
    const Fields wrong = {.end = WRONG};
    Fields fields;
    int64_t start = read_record_length(data, position, section_end, &fields.end);
    if (start < 0) {
        return wrong;
    }
    position = read_number(data, start + 1, fields.end, 64, &fields.delta_ms);
    if (position < 0) {
        return wrong;
    }
    position = read_number(data, position, fields.end, 32, &fields.delta);
    if (position < 0) {
        return wrong;
    }
    position = read_blob(data, position, fields.end, &fields.key_length);
    if (position < 0) {
        return wrong;
    }
    fields.key_start = position - max64(fields.key_length, 0);
    position = read_blob(data, position, fields.end, &fields.value_length);
    fields.value_start = position - max64(fields.value_length, 0);
    return position < 0 ? wrong : fields;
}

/* Where a record's headers begin (or WRONG) and how many there are; they end with the record. */
static int64_t read_headers(const uint8_t *data, int64_t position, int64_t end, int64_t *count) {
    position = read_number(data, position, end, 32, count);
    if (position < 0 || *count < 0 || *count > end - position) {
        return WRONG;
    }
    return skip_headers(data, position, end, *count) == end ? position : WRONG;
}

/* What `fetched.Columns` holds, and how many rows fit. */
typedef struct {
    int64_t *offsets, *timestamps;
    uint8_t *key_views, *value_views, *key_nulls, *value_nulls;
    int32_t *header_starts, *header_counts;
    int64_t room;
} Columns;

typedef struct {
    int64_t start, end, base_offset, next_offset, count, base_ms;
    int64_t append_ms, is_appended;
    int64_t from_offset;
} Batch;

enum { TOO_MANY = -1, REFUSED = -2 };

/* Fill the rows of one batch from `row` on; the row after them, TOO_MANY, or REFUSED. Batch and
   columns come by value: a byte that is written cannot change them, so they stay in registers. */
FOR_THIS_PROCESSOR
static int64_t fill_batch(const uint8_t *data, int64_t size, const Batch batch,
                          const Columns columns, int64_t row) {
    int64_t position = batch.start;
    int64_t deltas = (int64_t)((uint64_t)batch.next_offset - (uint64_t)batch.base_offset);
    for (int64_t left = batch.count; left > 0; left--) {
        Fields fields = read_quickly(data, size, position, batch.end);
        if (fields.end < 0) {
            fields = read_carefully(data, position, batch.end);
            if (fields.end < 0) {
                return REFUSED;
            }
        }
        position = fields.end;
        int64_t value_end = fields.value_start + max64(fields.value_length, 0);
        int64_t header_start = 0, header_count = 0;
        if (value_end + 1 != position || data[value_end] != 0) {
            header_start = read_headers(data, value_end, position, &header_count);
        }
        if (header_start < 0 || fields.delta < 0 || fields.delta >= deltas) {
            return REFUSED;
        }
        int64_t offset = wrapping_add(batch.base_offset, fields.delta);
        if (offset < batch.from_offset) {
            continue;
        }
        if (row >= columns.room) {
            return TOO_MANY;
        }
        columns.offsets[row] = offset;
        columns.timestamps[row] =
            batch.is_appended ? batch.append_ms : wrapping_add(batch.base_ms, fields.delta_ms);
        write_view(columns.key_views + VIEW_BYTES * row, data, size, fields.key_start,
                   fields.key_length);
        write_view(columns.value_views + VIEW_BYTES * row, data, size, fields.value_start,
                   fields.value_length);
        columns.key_nulls[row] = fields.key_length < 0;
        columns.value_nulls[row] = fields.value_length < 0;
        if (header_count) {
            columns.header_starts[row] = (int32_t)header_start;
            columns.header_counts[row] = (int32_t)header_count;
        }
        row++;
    }
    return position == batch.end ? row : REFUSED;
}

/* Fill the rows of all batches; `outcome` is how many, or which batch is wrong. */
static int fill(const uint8_t *data, int64_t size, const int64_t *table, int64_t batch_count,
                int64_t from_offset, const Columns *columns, int64_t *outcome) {
    int64_t row = 0;
    for (int64_t number = 0; number < batch_count; number++) {
        const int64_t *column = table + number;
        Batch batch = {
            .start = column[START * batch_count],
            .end = column[END * batch_count],
            .base_offset = column[BASE_OFFSET * batch_count],
            .next_offset = column[NEXT_OFFSET * batch_count],
            .count = column[RECORD_COUNT * batch_count],
            .base_ms = column[BASE_MS * batch_count],
            .append_ms = column[MAX_MS * batch_count],
            .is_appended = column[ATTRIBUTES * batch_count] & LOG_APPEND_TIME_BIT,
            .from_offset = from_offset,
        };
        bool is_inside = batch.start >= 0 && batch.start <= batch.end && batch.end <= size;
        int64_t next = is_inside ? fill_batch(data, size, batch, *columns, row) : REFUSED;
        if (next < 0) {
            *outcome = number;
            return next == TOO_MANY ? TOO_MANY : MALFORMED;
        }
        row = next;
    }
    *outcome = row;
    return DONE;
}

/* The five arrays of `fetched.Columns`, which have to be as long as each other. */
static bool read_columns(PyObject *tuple, Buffers *buffers, Columns *columns) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 5) {
        PyErr_SetString(PyExc_TypeError, "a tuple of five arrays is wanted");
        return false;
    }
    PyObject *objects[5];
    int64_t counts[5];
    for (int number = 0; number < 5; number++) {
        objects[number] = PyTuple_GetItem(tuple, number);
    }
    int64_t *longs = buffers_rows(buffers, objects[0], sizeof *longs, true, 2, &counts[0]);
    uint8_t *views =
        longs ? buffers_rows(buffers, objects[1], sizeof(int32_t), true, 2, &counts[1]) : NULL;
    columns->key_nulls = views ? buffers_items(buffers, objects[2], 1, true, &counts[2]) : NULL;
    columns->value_nulls =
        columns->key_nulls ? buffers_items(buffers, objects[3], 1, true, &counts[3]) : NULL;
    int32_t *headers =
        columns->value_nulls
            ? buffers_rows(buffers, objects[4], sizeof *headers, true, 2, &counts[4])
            : NULL;
    if (headers == NULL) {
        return false;
    }
    int64_t room = counts[0];
    if (counts[1] != 4 * room || counts[2] != room || counts[3] != room || counts[4] != room) {
        refuse("columns are as long as each other");
        return false;
    }
    columns->room = room;
    columns->offsets = longs;
    columns->timestamps = longs + room;
    columns->key_views = views;
    columns->value_views = views + VIEW_BYTES * room;
    columns->header_starts = headers;
    columns->header_counts = headers + room;
    return true;
}

/* fill_rows(data, table, from_offset, columns) -> verdict, outcome */
static PyObject *call_fill_rows(PyObject *const *args, Buffers *buffers) {
    int64_t size, batch_count, from_offset, outcome = 0;
    Columns columns;
    const uint8_t *data = buffers_bytes(buffers, args[0], &size);
    if (data == NULL) {
        return NULL;
    }
    const int64_t *table =
        buffers_rows(buffers, args[1], sizeof *table, false, TABLE_ROWS, &batch_count);
    if (table == NULL || !read_int64s(args + 2, 1, &from_offset)
        || !read_columns(args[3], buffers, &columns)) {
        return NULL;
    }
    if (size > INT32_MAX) {
        return refuse("data of less than 2 GiB is wanted: a view's place has 32 bits");
    }
    PyThreadState *state = allow_threads(size);
    int verdict = fill(data, size, table, batch_count, from_offset, &columns, &outcome);
    end_allow_threads(state);
    if (verdict == TOO_MANY) {
        return refuse("the batches have more records than the columns have room");
    }
    return Py_BuildValue("iL", verdict, outcome);
}

KERNEL(fill_rows, 4)
