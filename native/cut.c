/* Batches cut from a run for a Fetch answer (`log/plan.py`).

   A batch is served as it is stored, but for its first 16 bytes: base offset, length and leader
   epoch lie outside its checksum and are written here. */

#include "functions.h"
#include "rows.h"

enum { EPOCH_AT = 12, PATCHED_BYTES = 16 };

typedef struct {
    const uint8_t *data;
    const int64_t *starts, *ends, *counts;
    int64_t size, batch_count;
} Run;

typedef struct {
    int64_t base;      /* the offset of the run's first batch, then of the first that is taken */
    int64_t offset;    /* where the reader goes on */
    int64_t bytes_max; /* of all batches that are taken */
    int64_t must;      /* whether the first one is taken however large it is */
    int64_t epoch;
    int64_t first, end, bytes, largest;
    bool is_full;
} Cut;

static bool is_inside(const Run *run, int64_t number) {
    int64_t start = run->starts[number], end = run->ends[number];
    return start >= 0 && end <= run->size && end - start >= BATCH_HEADER_BYTES
           && run->counts[number] >= 0;
}

/* Choose the batches [first, end); false when one does not lie in the data. */
static bool choose(const Run *run, Cut *cut) {
    int64_t number = 0;
    for (; number < run->batch_count; number++) {
        if (!is_inside(run, number)) {
            return false;
        }
        int64_t next = wrapping_add(cut->base, run->counts[number]);
        if (next > cut->offset) {
            break;
        }
        cut->base = next;
    }
    cut->first = number;
    for (; number < run->batch_count; number++) {
        if (!is_inside(run, number)) {
            return false;
        }
        int64_t size = run->ends[number] - run->starts[number];
        if (size > cut->bytes_max - cut->bytes && !cut->must) {
            cut->is_full = true;
            break;
        }
        cut->must = 0;
        cut->bytes += size;
        cut->largest = max64(cut->largest, size);
    }
    cut->end = number;
    return true;
}

static void write_batches(const Run *run, const Cut *cut, uint8_t *out) {
    int64_t base = cut->base;
    for (int64_t number = cut->first; number < cut->end; number++) {
        const uint8_t *batch = run->data + run->starts[number];
        int64_t size = run->ends[number] - run->starts[number];
        memcpy(out, batch, (size_t)size);
        store_be64(out, (uint64_t)base);
        store_be32(out + EPOCH_AT, (uint32_t)cut->epoch);
        out += size;
        base = wrapping_add(base, run->counts[number]);
    }
}

static bool read_run(PyObject *const *args, Buffers *buffers, Run *run) {
    int64_t counts[2];
    run->data = buffers_bytes(buffers, args[0], &run->size);
    run->starts =
        run->data ? buffers_items(buffers, args[1], 8, false, &run->batch_count) : NULL;
    run->ends = run->starts ? buffers_items(buffers, args[2], 8, false, &counts[0]) : NULL;
    run->counts = run->ends ? buffers_items(buffers, args[3], 8, false, &counts[1]) : NULL;
    if (run->counts == NULL) {
        return false;
    }
    if (counts[0] != run->batch_count || counts[1] != run->batch_count) {
        refuse("for each batch a start, an end and a count are wanted");
        return false;
    }
    return true;
}

/* cut_batches(data, starts, ends, offset_counts, (base, offset, bytes_max, must, epoch,
   copied_bytes_max)) -> (first, end, base, bytes, is_full, joined)

   Joined are the batches as they are served, or None when one is too large to be copied. */
static PyObject *call_cut_batches(PyObject *const *args, Buffers *buffers) {
    Run run;
    int64_t rules[6];
    if (!read_run(args, buffers, &run) || !read_tuple(args[4], 6, rules)) {
        return NULL;
    }
    Cut cut = {.base = rules[0], .offset = rules[1], .bytes_max = rules[2], .must = rules[3],
               .epoch = rules[4]};
    if (!choose(&run, &cut)) {
        return refuse("a batch does not lie in the data");
    }
    PyObject *joined = Py_None;
    if (cut.largest <= rules[5]) {
        joined = PyBytes_FromStringAndSize(NULL, cut.bytes);
        if (joined == NULL) {
            return NULL;
        }
        write_batches(&run, &cut, (uint8_t *)PyBytes_AsString(joined));
    } else {
        Py_INCREF(joined);
    }
    return Py_BuildValue("LLLLNN", cut.first, cut.end, cut.base, cut.bytes,
                         PyBool_FromLong(cut.is_full), joined);
}

KERNEL(cut_batches, 5)
