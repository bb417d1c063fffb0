/* Where the fields of a batch's records lie, and views of such places (`records/columns.py`). */

#include "functions.h"
#include "records.h"
#include "views.h"

/* The rows of `columns.PLACES`. */
enum { DELTA, KEY_START, KEY_END, VALUE_START, VALUE_END, HEADERS, HEADER_COUNT, PLACES };
enum { HEADER_PLACES = 4 };

FOR_THIS_PROCESSOR
static int fill_columns(const uint8_t *data, int64_t size, int64_t base_ms, int64_t count,
                        int64_t *timestamps, int32_t *places) {
    int64_t position = 0;
    for (int64_t index = 0; index < count; index++) {
        int64_t end = 0;
        Record record;
        int64_t start = read_record_length(data, position, size, &end);
        if (start < 0) {
            return start == ENDED ? INCOMPLETE : MALFORMED;
        }
        if (!read_record(data, start, end, &record)) {
            return MALFORMED;
        }
        bool has_key = record.key_length >= 0, has_value = record.value_length >= 0;
        int32_t *place = places + index;
        timestamps[index] = wrapping_add(base_ms, record.delta_ms);
        place[DELTA * count] = (int32_t)record.offset_delta;
        place[KEY_START * count] = has_key ? (int32_t)(record.key_end - record.key_length) : -1;
        place[KEY_END * count] = has_key ? (int32_t)record.key_end : -1;
        place[VALUE_START * count] =
            has_value ? (int32_t)(record.value_end - record.value_length) : -1;
        place[VALUE_END * count] = has_value ? (int32_t)record.value_end : -1;
        place[HEADERS * count] = (int32_t)record.headers;
        place[HEADER_COUNT * count] = (int32_t)record.header_count;
        position = end;
    }
    return position == size ? DONE : MALFORMED;
}

/* fill_columns(data, base_ms, timestamps, places) -> verdict */
static PyObject *call_fill_columns(PyObject *const *args, Buffers *buffers) {
    int64_t size, base_ms, count, columns;
    const uint8_t *data = buffers_bytes(buffers, args[0], &size);
    if (data == NULL || !read_int64s(args + 1, 1, &base_ms)) {
        return NULL;
    }
    int64_t *timestamps = buffers_items(buffers, args[2], sizeof *timestamps, true, &count);
    if (timestamps == NULL) {
        return NULL;
    }
    int32_t *places = buffers_rows(buffers, args[3], sizeof *places, true, PLACES, &columns);
    if (places == NULL) {
        return NULL;
    }
    if (columns != count || size > INT32_MAX) {
        return refuse("as many places as timestamps are wanted, in data of less than 2 GiB");
    }
    PyThreadState *state = allow_threads(size);
    int verdict = fill_columns(data, size, base_ms, count, timestamps, places);
    end_allow_threads(state);
    return PyLong_FromLong(verdict);
}

KERNEL(fill_columns, 4)

/* Read a blob and put where it lies into its two rows; the position after it, or negative. */
static int64_t place_blob(const uint8_t *data, int64_t size, int64_t position, int32_t *start,
                          int32_t *end) {
    int64_t length;
    position = read_blob(data, position, size, &length);
    if (position >= 0) {
        *start = length < 0 ? -1 : (int32_t)(position - length);
        *end = length < 0 ? -1 : (int32_t)position;
    }
    return position;
}

/* A verdict, or negative when the headers are more than there is room for. */
FOR_THIS_PROCESSOR
static int fill_headers(const uint8_t *data, int64_t size, const int32_t *places, int64_t count,
                        int32_t *headers, int64_t room) {
    int64_t item = 0;
    for (int64_t index = 0; index < count; index++) {
        int64_t position = places[HEADERS * count + index];
        int64_t left = places[HEADER_COUNT * count + index];
        if (left > room - item) {
            return -1;
        }
        if (left > 0 && (position < 0 || position > size)) {
            return MALFORMED;
        }
        for (; left > 0; left--, item++) {
            int32_t *place = headers + item;
            position = place_blob(data, size, position, place, place + room);
            if (position >= 0) {
                position = place_blob(data, size, position, place + 2 * room, place + 3 * room);
            }
            if (position < 0) {
                return MALFORMED;
            }
        }
    }
    return DONE;
}

/* fill_headers(data, places, headers) -> verdict */
static PyObject *call_fill_headers(PyObject *const *args, Buffers *buffers) {
    int64_t size, count, room;
    const uint8_t *data = buffers_bytes(buffers, args[0], &size);
    if (data == NULL) {
        return NULL;
    }
    const int32_t *places = buffers_rows(buffers, args[1], sizeof *places, false, PLACES, &count);
    if (places == NULL) {
        return NULL;
    }
    int32_t *headers =
        buffers_rows(buffers, args[2], sizeof *headers, true, HEADER_PLACES, &room);
    if (headers == NULL) {
        return NULL;
    }
    if (size > INT32_MAX) {
        return refuse("data of less than 2 GiB is wanted");
    }
    PyThreadState *state = allow_threads(size);
    int verdict = fill_headers(data, size, places, count, headers, room);
    end_allow_threads(state);
    if (verdict < 0) {
        return refuse("the places count more headers than there is room for");
    }
    return PyLong_FromLong(verdict);
}

KERNEL(fill_headers, 3)

FOR_THIS_PROCESSOR
static bool fill_views(const uint8_t *data, int64_t size, const int32_t *starts,
                       const int32_t *ends, int64_t count, uint8_t *views) {
    for (int64_t row = 0; row < count; row++) {
        int64_t start = starts[row], end = ends[row];
        if (start >= 0 && (end < start || end > size)) {
            return false;
        }
        write_view(views + VIEW_BYTES * row, data, size, start, start < 0 ? 0 : end - start);
    }
    return true;
}

/* fill_views(data, starts, ends, views) */
static PyObject *call_fill_views(PyObject *const *args, Buffers *buffers) {
    int64_t size, count, end_count, view_words;
    const uint8_t *data = buffers_bytes(buffers, args[0], &size);
    if (data == NULL) {
        return NULL;
    }
    const int32_t *starts = buffers_items(buffers, args[1], sizeof *starts, false, &count);
    if (starts == NULL) {
        return NULL;
    }
    const int32_t *ends = buffers_items(buffers, args[2], sizeof *ends, false, &end_count);
    if (ends == NULL) {
        return NULL;
    }
    uint8_t *views = buffers_items(buffers, args[3], sizeof(int32_t), true, &view_words);
    if (views == NULL) {
        return NULL;
    }
    if (end_count != count || view_words != 4 * count) {
        return refuse("for each start one end and one view of four words are wanted");
    }
    PyThreadState *state = allow_threads(VIEW_BYTES * count);
    bool is_done = fill_views(data, size, starts, ends, count, views);
    end_allow_threads(state);
    if (!is_done) {
        return refuse("a place is not in the data");
    }
    Py_RETURN_NONE;
}

KERNEL(fill_views, 4)
