/* Sources of rows: the columns of one run each, as `ordering.Source` has them. */

#ifndef LAKELOG_SOURCES_H
#define LAKELOG_SOURCES_H

#include "kernel.h"

/* The columns that are gathered, as `ordering.py` numbers them, then the others. */
enum { OFFSETS, KEY_VIEWS, VALUE_VIEWS, KEY_NULLS, VALUE_NULLS, GATHERED, TIMESTAMPS = GATHERED };
enum { ORDER = TIMESTAMPS + 1, COLUMNS };

/* The size of an item of each column. */
extern const int item_bytes[COLUMNS];

typedef struct {
    Buffers buffers;
    const uint8_t *columns[COLUMNS]; /* NULL where one is absent */
    int64_t index;
    int64_t count; /* of rows in order */
    int64_t rows;  /* of the columns */
} Source;

static inline const int64_t *timestamps_of(const Source *source) {
    return (const int64_t *)source->columns[TIMESTAMPS];
}

/* The sources of a call, which its tuple keeps; and how many. */
typedef struct {
    const Source **each;
    int64_t count;
} Sources;

/* False with a Python error; `each` is to be freed either way, with PyMem_Free. */
bool read_sources(PyObject *tuple, Sources *sources);

/* Whether all spans are in their sources; false with a Python error. */
bool check_spans(const Sources *sources, const int64_t *starts, const int64_t *ends);

#endif
