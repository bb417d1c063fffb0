/* Timestamps searched and sorted.

   Sorting is by digits from the lowest up: rows of sixty partitions that were read together lie
   within seconds, so two passes over one word a row (the time since the least, the source, the row)
   do it. */

#include "sorting.h"

#include "functions.h"

enum {
    DIGIT_BITS_MAX = 11, /* a table of 2048 counts fits the first cache */
    FEW_ROWS = 4096,
    FEW_DIGIT_BITS_MAX = 8, /* with few rows, clearing a larger one costs more than another pass */
};

FOR_THIS_PROCESSOR
static uint64_t *sort_by_digits(uint64_t *words, uint64_t *spare, int64_t count, int shift,
                                int bits) {
    int digit_bits_max = count < FEW_ROWS ? FEW_DIGIT_BITS_MAX : DIGIT_BITS_MAX;
    int passes = (bits + digit_bits_max - 1) / digit_bits_max;
    if (passes == 0) {
        return words;
    }
    int digit_bits = (bits + passes - 1) / passes;
    uint64_t mask = ((uint64_t)1 << digit_bits) - 1;
    int64_t places[1 << DIGIT_BITS_MAX];
    for (int number = 0; number < passes; number++) {
        int low = shift + number * digit_bits;
        memset(places, 0, sizeof places[0] << digit_bits);
        UNROLLED
        for (int64_t row = 0; row < count; row++) {
            places[words[row] >> low & mask]++;
        }
        int64_t place = 0;
        for (uint64_t digit = 0; digit <= mask; digit++) {
            int64_t found = places[digit];
            places[digit] = place;
            place += found;
        }
        UNROLLED
        for (int64_t row = 0; row < count; row++) {
            uint64_t word = words[row];
            spare[places[word >> low & mask]++] = word;
        }
        uint64_t *sorted = spare;
        spare = words;
        words = sorted;
    }
    return words;
}

uint64_t *sort_words(uint64_t *words, uint64_t *spare, int64_t count, int shift, int bits) {
    return sort_by_digits(words, spare, count, shift, bits);
}

/* Where the search for the last timestamp is. */
typedef struct {
    int64_t least, greatest; /* it is in [least, greatest] */
    int64_t guesses[2];      /* what to try first */
} Search;

/* The bounds of all rows, and as guesses the greatest and the least timestamp at which runs have
   given their share of the rows. */
static Search begin_search(const Run *runs, int64_t count, int64_t rows_max) {
    Search search = {INT64_MAX, INT64_MIN, {INT64_MIN, INT64_MAX}};
    int64_t share = rows_max / count;
    for (int64_t number = 0; number < count; number++) {
        Run run = runs[number];
        if (run.start < run.end) {
            int64_t last = run.end - 1;
            int64_t given = share < last - run.start ? run.start + share : last;
            search.least = min64(search.least, run.timestamps[run.start]);
            search.greatest = max64(search.greatest, run.timestamps[last]);
            search.guesses[0] = max64(search.guesses[0], run.timestamps[given]);
            search.guesses[1] = min64(search.guesses[1], run.timestamps[given]);
        }
    }
    /* What lies below the least one is asked for: if that is too little, it is the answer. */
    search.guesses[1] = wrapping_add(search.guesses[1], -1);
    return search;
}

static int64_t next_timestamp(const Search *search, int attempt) {
    if (attempt < 2) {
        int64_t guess = search->guesses[attempt];
        if (search->least <= guess && guess < search->greatest) {
            return guess;
        }
    }
    uint64_t width = (uint64_t)search->greatest - (uint64_t)search->least;
    return wrapping_add(search->least, (int64_t)(width >> 1));
}

int64_t last_timestamp(const Run *runs, int64_t count, int64_t rows_max, int64_t *scratch) {
    /* Places below `lower` hold rows before the least, those from `upper` on rows after the
       greatest. */
    int64_t *lower = scratch, *upper = lower + count, *places = upper + count;
    for (int64_t number = 0; number < count; number++) {
        lower[number] = runs[number].start;
        upper[number] = runs[number].end;
    }
    Search search = begin_search(runs, count, rows_max);
    for (int attempt = 0; search.least < search.greatest; attempt++) {
        int64_t half = next_timestamp(&search, attempt);
        int64_t total = 0;
        for (int64_t number = 0; number < count; number++) {
            Run run = {runs[number].timestamps, lower[number], upper[number]};
            places[number] = count_until(run, half);
            total += places[number] - runs[number].start;
        }
        int64_t *freed;
        if (total >= rows_max) {
            search.greatest = half;
            freed = upper;
            upper = places;
        } else {
            search.least = half + 1;
            freed = lower;
            lower = places;
        }
        places = freed;
    }
    return search.least;
}

/* Fill the order by way of words; false when the words' bits are too few. */
FOR_THIS_PROCESSOR
static bool sort_order(const int64_t *timestamps, int64_t count, int32_t *order, uint64_t *words) {
    int64_t least = INT64_MAX, greatest = INT64_MIN;
    for (int64_t row = 0; row < count; row++) {
        least = min64(least, timestamps[row]);
        greatest = max64(greatest, timestamps[row]);
    }
    int row_bits = bit_length((uint64_t)count);
    int bits = bit_length((uint64_t)greatest - (uint64_t)least);
    if (row_bits + bits > 63) {
        return false;
    }
    for (int64_t row = 0; row < count; row++) {
        uint64_t time = (uint64_t)timestamps[row] - (uint64_t)least;
        words[row] = time << row_bits | (uint64_t)row;
    }
    words = sort_words(words, words + count, count, row_bits, bits);
    uint64_t mask = ((uint64_t)1 << row_bits) - 1;
    for (int64_t row = 0; row < count; row++) {
        order[row] = (int32_t)(words[row] & mask);
    }
    return true;
}

/* stable_order(timestamps_ms, order) -> whether a word holds a time and a row */
static PyObject *call_stable_order(PyObject *const *args, Buffers *buffers) {
    int64_t count, order_count;
    const int64_t *timestamps = buffers_items(buffers, args[0], sizeof *timestamps, false, &count);
    if (timestamps == NULL) {
        return NULL;
    }
    int32_t *order = buffers_items(buffers, args[1], sizeof *order, true, &order_count);
    if (order == NULL) {
        return NULL;
    }
    if (order_count != count || count > INT32_MAX) {
        return refuse("as many places as timestamps are wanted");
    }
    uint64_t *words = malloc((size_t)(2 * count + 1) * sizeof *words);
    if (words == NULL) {
        return PyErr_NoMemory();
    }
    PyThreadState *state = allow_threads(count * (int64_t)sizeof *words);
    bool is_done = count == 0 || sort_order(timestamps, count, order, words);
    end_allow_threads(state);
    free(words);
    return PyBool_FromLong(is_done);
}

KERNEL(stable_order, 2)
