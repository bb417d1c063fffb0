/* Runs of rows merged in the order of their time (`records/ordering.py`).

   Timestamps are sorted as each source says; if they are not, rows come in a wrong order, but
   nothing is read outside. sources.c has the sources, sorting.c searches and sorts. */

#include "functions.h"
#include "sorting.h"
#include "sources.h"
#include "views.h"

/* Narrow the spans, as `ordering.choose` does; `ends` is changed. */
FOR_THIS_PROCESSOR
static int64_t choose(const Sources *sources, const int64_t *starts, int64_t *ends,
                      const int64_t *limit, int64_t rows_max, Run *runs, int64_t *scratch) {
    int64_t total = 0;
    for (int64_t number = 0; number < sources->count; number++) {
        const Source *source = sources->each[number];
        runs[number] = (Run){timestamps_of(source), starts[number], ends[number]};
        ends[number] = source->index <= limit[1] ? count_until(runs[number], limit[0])
                                                 : count_below(runs[number], limit[0]);
        runs[number].end = ends[number];
        total += ends[number] - starts[number];
    }
    if (total <= rows_max) {
        return total;
    }
    int64_t last_ms = last_timestamp(runs, sources->count, rows_max, scratch);
    int64_t left = rows_max;
    for (int64_t number = 0; number < sources->count; number++) {
        ends[number] = count_below(runs[number], last_ms);
        left -= ends[number] - starts[number];
    }
    /* Of the rows at the last timestamp, those of the first sources come first. */
    for (int64_t number = 0; number < sources->count; number++) {
        Run rest = {runs[number].timestamps, ends[number], runs[number].end};
        int64_t equal = min64(max64(left, 0), count_until(rest, last_ms) - ends[number]);
        ends[number] += equal;
        left -= equal;
    }
    return rows_max;
}

/* The answer of `choose_rows`, once its sources are read. */
static PyObject *choose_sources(const Sources *sources, PyObject *const *args, Buffers *buffers) {
    int64_t limit[2], rows_max, columns;
    int64_t *spans = buffers_rows(buffers, args[1], sizeof *spans, true, 2, &columns);
    if (spans == NULL || !read_tuple(args[2], 2, limit) || !read_int64s(args + 3, 1, &rows_max)) {
        return NULL;
    }
    if (columns != sources->count || rows_max < 1) {
        return refuse("one span for each source is wanted, and rows_max of at least one");
    }
    if (!check_spans(sources, spans, spans + columns)) {
        return NULL;
    }
    Run *runs = malloc((size_t)(columns + 1) * (sizeof *runs + SCRATCH_ITEMS * sizeof(int64_t)));
    if (runs == NULL) {
        return PyErr_NoMemory();
    }
    /* The GIL stays: this is some searches in each source, microseconds altogether. */
    int64_t count = choose(sources, spans, spans + columns, limit, rows_max, runs,
                           (int64_t *)(runs + columns));
    free(runs);
    return PyLong_FromLongLong(count);
}

/* choose_rows(sources, spans, limit, rows_max) -> count */
static PyObject *call_choose_rows(PyObject *const *args, Buffers *buffers) {
    Sources sources;
    PyObject *answer =
        read_sources(args[0], &sources) ? choose_sources(&sources, args, buffers) : NULL;
    PyMem_Free(sources.each);
    return answer;
}

KERNEL(choose_rows, 4)

/* Rows in their order: as `ordering.Merged`. */
typedef struct {
    int32_t *numbers, *rows;
    int64_t *timestamps;
    int64_t count;
} Merged;

/* What a word holds from its lowest bit up: place, number of the source, time since the least. */
typedef struct {
    int place_bits, number_bits, time_bits;
    int64_t least_ms;
} WordLayout;

static WordLayout layout_of(const Sources *sources, const int64_t *starts, const int64_t *ends) {
    int64_t least = INT64_MAX, greatest = INT64_MIN, last_place = 0;
    for (int64_t number = 0; number < sources->count; number++) {
        const int64_t *timestamps = timestamps_of(sources->each[number]);
        if (starts[number] < ends[number]) {
            least = min64(least, timestamps[starts[number]]);
            greatest = max64(greatest, timestamps[ends[number] - 1]);
        }
        last_place = max64(last_place, ends[number]);
    }
    return (WordLayout){
        .place_bits = bit_length((uint64_t)last_place),
        .number_bits = bit_length((uint64_t)sources->count),
        .time_bits = bit_length((uint64_t)greatest - (uint64_t)least),
        .least_ms = least,
    };
}

FOR_THIS_PROCESSOR
static void merge(const Sources *sources, const int64_t *starts, const int64_t *ends,
                  WordLayout layout, Merged merged, uint64_t *words) {
    int low_bits = layout.place_bits + layout.number_bits;
    uint64_t least = (uint64_t)layout.least_ms;
    int64_t row = 0;
    for (int64_t number = 0; number < sources->count; number++) {
        const int64_t *timestamps = timestamps_of(sources->each[number]);
        uint64_t low = (uint64_t)number << layout.place_bits;
        for (int64_t place = starts[number]; place < ends[number]; place++) {
            uint64_t time = (uint64_t)timestamps[place] - least;
            words[row++] = time << low_bits | low | (uint64_t)place;
        }
    }
    words = sort_words(words, words + merged.count, merged.count, low_bits, layout.time_bits);
    uint64_t place_mask = ((uint64_t)1 << layout.place_bits) - 1;
    uint64_t number_mask = ((uint64_t)1 << layout.number_bits) - 1;
    for (row = 0; row < merged.count; row++) {
        uint64_t place = words[row] & place_mask;
        uint64_t number = words[row] >> layout.place_bits & number_mask;
        const int32_t *order = (const int32_t *)sources->each[number]->columns[ORDER];
        merged.numbers[row] = (int32_t)number;
        merged.rows[row] = order != NULL ? order[place] : (int32_t)place;
        merged.timestamps[row] = (int64_t)((words[row] >> low_bits) + least);
    }
}

static bool read_merged(PyObject *const *args, Buffers *buffers, Merged *merged) {
    int64_t counts[2];
    merged->numbers = buffers_items(buffers, args[0], 4, true, &merged->count);
    merged->rows = merged->numbers ? buffers_items(buffers, args[1], 4, true, &counts[0]) : NULL;
    merged->timestamps =
        merged->rows ? buffers_items(buffers, args[2], 8, true, &counts[1]) : NULL;
    if (merged->timestamps == NULL) {
        return false;
    }
    if (counts[0] != merged->count || counts[1] != merged->count) {
        refuse("numbers, rows and timestamps are as long as each other");
        return false;
    }
    return true;
}

/* The answer of `merge_rows`, once its sources are read. */
static PyObject *merge_sources(const Sources *sources, PyObject *const *args,
                               Buffers *buffers) {
    Merged merged;
    int64_t columns, total = 0;
    const int64_t *starts = buffers_rows(buffers, args[1], sizeof *starts, false, 2, &columns);
    if (starts == NULL || !read_merged(args + 2, buffers, &merged)) {
        return NULL;
    }
    const int64_t *ends = starts + columns;
    if (columns != sources->count) {
        return refuse("one span for each source is wanted");
    }
    if (!check_spans(sources, starts, ends)) {
        return NULL;
    }
    for (int64_t number = 0; number < columns; number++) {
        total += ends[number] - starts[number];
    }
    if (total != merged.count) {
        return refuse("the spans have another number of rows than there is room for");
    }
    WordLayout layout = layout_of(sources, starts, ends);
    if (total > 0 && layout.place_bits + layout.number_bits + layout.time_bits > 63) {
        Py_RETURN_FALSE;
    }
    uint64_t *words = malloc((size_t)(2 * total + 1) * sizeof *words);
    if (words == NULL) {
        return PyErr_NoMemory();
    }
    PyThreadState *state = allow_threads(total * (int64_t)sizeof *words);
    if (total > 0) {
        merge(sources, starts, ends, layout, merged, words);
    }
    end_allow_threads(state);
    free(words);
    Py_RETURN_TRUE;
}

/* merge_rows(sources, spans, numbers, rows, timestamps_ms) -> whether a word is enough */
static PyObject *call_merge_rows(PyObject *const *args, Buffers *buffers) {
    Sources sources;
    PyObject *answer =
        read_sources(args[0], &sources) ? merge_sources(&sources, args, buffers) : NULL;
    PyMem_Free(sources.each);
    return answer;
}

KERNEL(merge_rows, 5)

/* One column of one source; `items` is NULL where it is absent. */
typedef struct {
    const uint8_t *items;
    int64_t rows;
} Column;

/* What is gathered for which rows. */
typedef struct {
    const Column *columns;
    int64_t column_count;
    const int32_t *numbers, *rows;
    int64_t count;
    uint8_t *output;
} Gathering;

/* `columns` has one more than there are, without rows, for all numbers that are none: so to test
   the row is enough. */
static inline Column column_at(const Gathering *gathering, int64_t row) {
    uint64_t number = (uint32_t)gathering->numbers[row];
    uint64_t none = (uint64_t)gathering->column_count;
    return gathering->columns[number < none ? number : none];
}

FOR_THIS_PROCESSOR
static bool gather_longs(const Gathering gathering) {
    UNROLLED
    for (int64_t row = 0; row < gathering.count; row++) {
        Column column = column_at(&gathering, row);
        uint64_t place = (uint32_t)gathering.rows[row];
        if (place >= (uint64_t)column.rows) {
            return false;
        }
        memcpy(gathering.output + 8 * row, column.items + 8 * place, 8);
    }
    return true;
}

FOR_THIS_PROCESSOR
static bool gather_views(const Gathering gathering) {
    UNROLLED
    for (int64_t row = 0; row < gathering.count; row++) {
        Column column = column_at(&gathering, row);
        uint64_t place = (uint32_t)gathering.rows[row];
        if (place >= (uint64_t)column.rows) {
            return false;
        }
        const uint8_t *view = column.items + VIEW_BYTES * place;
        uint64_t first = load_64(view), second = load_64(view + 8);
        /* The buffer of a view that points anywhere is that of its source. A sign is made a mask
           because a branch is guessed wrong where lengths lie on both sides of the limit. */
        uint64_t points = (uint64_t)((INLINE_BYTES - (int64_t)(int32_t)first) >> 63);
        uint64_t buffer = ((uint32_t)second ^ (uint32_t)gathering.numbers[row]) & points;
        second ^= buffer;
        store_view(gathering.output + VIEW_BYTES * row, first, second);
    }
    return true;
}

/* The rows of sources without flags stay as they are. */
FOR_THIS_PROCESSOR
static bool gather_flags(const Gathering gathering) {
    UNROLLED
    for (int64_t row = 0; row < gathering.count; row++) {
        Column column = column_at(&gathering, row);
        uint64_t place = (uint32_t)gathering.rows[row];
        if (place >= (uint64_t)column.rows) {
            return false;
        }
        if (column.items != NULL) {
            gathering.output[row] = column.items[place];
        }
    }
    return true;
}

static bool gather(const Gathering gathering, int field) {
    switch (item_bytes[field]) {
    case 8:
        return gather_longs(gathering);
    case VIEW_BYTES:
        return gather_views(gathering);
    default:
        return gather_flags(gathering);
    }
}

/* The answer of `gather_rows`, once its sources are read. */
static PyObject *gather_sources(const Sources *sources, PyObject *const *args, Buffers *buffers) {
    int64_t field, count, counts[2];
    if (!read_int64s(args + 1, 1, &field)) {
        return NULL;
    }
    const int32_t *numbers = buffers_items(buffers, args[2], sizeof *numbers, false, &count);
    const int32_t *rows =
        numbers ? buffers_items(buffers, args[3], sizeof *rows, false, &counts[0]) : NULL;
    if (rows == NULL) {
        return NULL;
    }
    if (field < 0 || field >= GATHERED) {
        return refuse("no such field");
    }
    int words = item_bytes[field] == VIEW_BYTES ? 4 : 1;
    uint8_t *output =
        buffers_items(buffers, args[4], item_bytes[field] / words, true, &counts[1]);
    if (output == NULL) {
        return NULL;
    }
    if (counts[0] != count || counts[1] != words * count) {
        return refuse("numbers, rows and output are as long as each other");
    }
    Column *columns = malloc((size_t)(sources->count + 1) * sizeof *columns);
    if (columns == NULL) {
        return PyErr_NoMemory();
    }
    for (int64_t number = 0; number < sources->count; number++) {
        const Source *source = sources->each[number];
        columns[number] = (Column){source->columns[field], source->rows};
    }
    columns[sources->count] = (Column){NULL, 0};
    PyThreadState *state = allow_threads(count * item_bytes[field]);
    bool is_done = gather(
        (Gathering){columns, sources->count, numbers, rows, count, output}, (int)field);
    end_allow_threads(state);
    free(columns);
    if (!is_done) {
        return refuse("a row is not in its source");
    }
    Py_RETURN_NONE;
}

/* gather_rows(sources, field, numbers, rows, output) */
static PyObject *call_gather_rows(PyObject *const *args, Buffers *buffers) {
    Sources sources;
    PyObject *answer =
        read_sources(args[0], &sources) ? gather_sources(&sources, args, buffers) : NULL;
    PyMem_Free(sources.each);
    return answer;
}

KERNEL(gather_rows, 5)
