/* A Commit's columns: made of the rows of its batches, and checked before anybody goes by them. */

#include "commit.h"
#include "functions.h"
#include "rows.h"

enum { COLUMNS = 8, FIRST_PRODUCER_COLUMN = 5, LENGTH_BYTES = 4 };
static const int SIZES[COLUMNS] = {8, 4, 4, 4, 8, 8, 2, 4};

bool read_commit(Buffers *buffers, PyObject *tuple, CommitColumns *commit) {
    const uint8_t **columns[COLUMNS] = {&commit->streams, &commit->byte_starts,
                                        &commit->byte_lengths, &commit->counts,
                                        &commit->times, &commit->producers,
                                        &commit->epochs, &commit->sequences};
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != COLUMNS) {
        PyErr_SetString(PyExc_TypeError, "the eight columns of a Commit are wanted");
        return false;
    }
    for (int number = 0; number < COLUMNS; number++) {
        int64_t bytes;
        *columns[number] = buffers_bytes(buffers, PyTuple_GetItem(tuple, number), &bytes);
        if (*columns[number] == NULL) {
            return false;
        }
        if (number == 0) {
            commit->batches = bytes / SIZES[0];
        }
        if (bytes != commit->batches * SIZES[number]) {
            refuse("columns of different lengths");
            return false;
        }
    }
    return true;
}

/* Whether one batch may stand behind the one that ends at `before`, of the stream before it. */
static bool is_sound(const CommitColumns *commit, int64_t at, int64_t before) {
    int64_t start = uint_at(commit->byte_starts, at);
    if (at > 0) {
        int64_t stream = long_at(commit->streams, at), last = long_at(commit->streams, at - 1);
        if (stream < last || (stream == last ? start != before : start < before)) {
            return false;
        }
    }
    bool has_producer = long_at(commit->producers, at) >= 0;
    return uint_at(commit->counts, at) > 0
           && !(has_producer && (sequence_at(commit, at) < 0 || epoch_at(commit, at) < 0));
}

/* is_sound_commit(columns, size_bytes) -> whether batches can lie so in an object of that size */
static PyObject *call_is_sound_commit(PyObject *const *args, Buffers *buffers) {
    CommitColumns commit = {0};
    int64_t size, end = 0;
    if (!read_commit(buffers, args[0], &commit) || !read_int64s(args + 1, 1, &size)) {
        return NULL;
    }
    bool sound = commit.batches > 0;
    for (int64_t at = 0; sound && at < commit.batches; at++) {
        sound = is_sound(&commit, at, end);
        end = (int64_t)uint_at(commit.byte_starts, at) + uint_at(commit.byte_lengths, at);
    }
    return PyBool_FromLong(sound && end <= size);
}

KERNEL(is_sound_commit, 2)

/* Write column after column, in the object's order. */
static void pack(uint8_t *out, const int64_t *rows, const int64_t *order, const int64_t *starts,
                 int64_t batches, int columns) {
    for (int column = 0; column < columns; column++) {
        for (int64_t number = 0; number < batches; number++) {
            const int64_t *row = rows + order[number] * ROW_COLUMNS;
            int64_t values[COLUMNS] = {row[ROW_STREAM],      starts[number],
                                       row[ROW_LENGTH] + LENGTH_BYTES, row[ROW_RECORDS],
                                       row[ROW_GREATEST_MS], row[ROW_PRODUCER],
                                       row[ROW_EPOCH],       row[ROW_SEQUENCE]};
            memcpy(out, &values[column], (size_t)SIZES[column]); /* little-endian: the low bytes */
            out += SIZES[column];
        }
    }
}

/* pack_commit(rows, order, starts) -> its columns, without those of producers if there are none */
static PyObject *call_pack_commit(PyObject *const *args, Buffers *buffers) {
    int64_t numbers, batches, begun;
    const int64_t *rows = buffers_items(buffers, args[0], 8, false, &numbers);
    const int64_t *order = rows ? buffers_items(buffers, args[1], 8, false, &batches) : NULL;
    const int64_t *starts = order ? buffers_items(buffers, args[2], 8, false, &begun) : NULL;
    if (starts == NULL) {
        return NULL;
    }
    if (numbers != batches * ROW_COLUMNS || begun != batches) {
        return refuse("rows, order and starts do not fit together");
    }
    int columns = FIRST_PRODUCER_COLUMN;
    for (int64_t number = 0; number < batches; number++) {
        if (order[number] < 0 || order[number] >= batches) {
            return refuse("the order names a row that is not there");
        }
        if (rows[order[number] * ROW_COLUMNS + ROW_PRODUCER] >= 0) {
            columns = COLUMNS;
        }
    }
    int64_t bytes = 0;
    for (int column = 0; column < columns; column++) {
        bytes += batches * SIZES[column];
    }
    PyObject *packed = PyBytes_FromStringAndSize(NULL, bytes);
    if (packed != NULL) {
        pack((uint8_t *)PyBytes_AsString(packed), rows, order, starts, batches, columns);
    }
    return packed;
}

KERNEL(pack_commit, 3)
