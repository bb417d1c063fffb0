/* One pass over the records of a batch: structure, deltas, timestamps, keys (`records/scan.py`). */

#include "functions.h"
#include "records.h"

FOR_THIS_PROCESSOR
static ScanOutcome scan(const uint8_t *data, int64_t size, int64_t position, int64_t index,
                        int64_t count, Limits limits) {
    ScanOutcome outcome = {DONE, position, index, INT64_MAX, INT64_MIN, 0};
    for (; outcome.index < count; outcome.index++) {
        int64_t end = 0;
        Record record;
        int64_t start = read_record_length(data, outcome.position, size, &end);
        if (start < 0) {
            outcome.verdict = start == ENDED ? INCOMPLETE : MALFORMED;
            return outcome;
        }
        if (!read_record(data, start, end, &record)) {
            outcome.verdict = MALFORMED;
            return outcome;
        }
        if (record.offset_delta != outcome.index) {
            outcome.verdict = MISPLACED;
            return outcome;
        }
        int64_t timestamp_ms = wrapping_add(limits.base_ms, record.delta_ms);
        outcome.least_ms = min64(outcome.least_ms, timestamp_ms);
        outcome.greatest_ms = max64(outcome.greatest_ms, timestamp_ms);
        bool outside = timestamp_ms < limits.lower_ms || timestamp_ms > limits.upper_ms;
        if ((limits.keyed && record.key_length < 0)
            || (outside && timestamp_ms != NO_TIMESTAMP_MS)) {
            outcome.bad++;
        }
        outcome.position = end;
    }
    return outcome;
}

ScanOutcome scan_records(const uint8_t *data, int64_t size, int64_t position, int64_t index,
                         int64_t count, Limits limits) {
    return scan(data, size, position, index, count, limits);
}

/* scan(data, position, index, count, limits) -> ScanOutcome */
static PyObject *call_scan(PyObject *const *args, Buffers *buffers) {
    int64_t size, numbers[3], limits[4];
    if (!read_int64s(args + 1, 3, numbers) || !read_tuple(args[4], 4, limits)) {
        return NULL;
    }
    const uint8_t *data = buffers_bytes(buffers, args[0], &size);
    if (data == NULL) {
        return NULL;
    }
    if (numbers[0] < 0 || numbers[0] > size) {
        return refuse("the position is not in the data");
    }
    PyThreadState *state = allow_threads(size - numbers[0]);
    ScanOutcome outcome = scan_records(data, size, numbers[0], numbers[1], numbers[2],
                                       (Limits){limits[0], limits[1], limits[2], limits[3]});
    end_allow_threads(state);
    return Py_BuildValue("LLLLLL", outcome.verdict, outcome.position, outcome.index,
                         outcome.least_ms, outcome.greatest_ms, outcome.bad);
}

KERNEL(scan, 5)
