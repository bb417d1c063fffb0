/* Sources of rows, as capsules.

   A capsule holds the buffers of its columns, which were taken and checked once: a call gets the
   capsules of sixty sources, and asking each of their arrays anew would take longer than the
   work. */

#include "sources.h"

#include "functions.h"
#include "views.h"

#define SOURCE_NAME "lakelog._native.row_source"

const int item_bytes[COLUMNS] = {8, VIEW_BYTES, VIEW_BYTES, 1, 1, 8, 4};

static void free_source(PyObject *capsule) {
    Source *source = PyCapsule_GetPointer(capsule, SOURCE_NAME);
    buffers_release(&source->buffers);
    PyMem_Free(source);
}

/* The column's items, which have to be `count`; false with a Python error. */
static bool read_column(Source *source, int column, PyObject *object, int64_t *count) {
    bool may_be_absent = column == ORDER || column == KEY_NULLS || column == VALUE_NULLS;
    source->columns[column] = NULL;
    if (object == Py_None && may_be_absent) {
        return true;
    }
    /* A view is four words. */
    int words = item_bytes[column] == VIEW_BYTES ? 4 : 1;
    int64_t found;
    const uint8_t *items =
        buffers_items(&source->buffers, object, item_bytes[column] / words, false, &found);
    if (items == NULL) {
        return false;
    }
    if (*count < 0) {
        *count = found;
    }
    if (found != *count * words || found > (int64_t)INT32_MAX * words) {
        refuse("a source's columns are as long as each other");
        return false;
    }
    source->columns[column] = items;
    return true;
}

/* row_source(index, timestamps_ms, order, offsets, key_views, value_views, key_nulls, value_nulls)
   -> capsule */
PyObject *native_row_source(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const int order[] = {TIMESTAMPS,  ORDER,     OFFSETS,    KEY_VIEWS,
                                VALUE_VIEWS, KEY_NULLS, VALUE_NULLS};
    int64_t index;
    if (!argument_count_is("row_source", nargs, 1 + COLUMNS) || !read_int64s(args, 1, &index)) {
        return NULL;
    }
    Source *source = PyMem_Malloc(sizeof *source);
    if (source == NULL) {
        return PyErr_NoMemory();
    }
    source->buffers.count = 0;
    source->index = index;
    source->count = source->rows = -1;
    PyObject *capsule = PyCapsule_New(source, SOURCE_NAME, free_source);
    if (capsule == NULL) {
        PyMem_Free(source);
        return NULL;
    }
    for (int number = 0; number < COLUMNS; number++) {
        int column = order[number];
        bool is_ordered = column == TIMESTAMPS || column == ORDER;
        int64_t *count = is_ordered ? &source->count : &source->rows;
        if (!read_column(source, column, args[1 + number], count)) {
            Py_DECREF(capsule);
            return NULL;
        }
    }
    if (source->columns[ORDER] == NULL && source->count != source->rows) {
        Py_DECREF(capsule);
        return refuse("without an order every row is there");
    }
    return capsule;
}

bool read_sources(PyObject *tuple, Sources *sources) {
    sources->each = NULL;
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a tuple of sources is wanted");
        return false;
    }
    sources->count = PyTuple_Size(tuple);
    sources->each = PyMem_Malloc((size_t)(sources->count + 1) * sizeof *sources->each);
    if (sources->each == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (int64_t number = 0; number < sources->count; number++) {
        PyObject *item = PyTuple_GetItem(tuple, number);
        sources->each[number] = PyCapsule_GetPointer(item, SOURCE_NAME);
        if (sources->each[number] == NULL) {
            return false;
        }
    }
    return true;
}

bool check_spans(const Sources *sources, const int64_t *starts, const int64_t *ends) {
    for (int64_t number = 0; number < sources->count; number++) {
        if (starts[number] < 0 || starts[number] > ends[number]
            || ends[number] > sources->each[number]->count) {
            refuse("a span is not in its source");
            return false;
        }
    }
    return true;
}
