/* A Commit whose batches all go on where their streams stand: offsets, windows, index entries.

   That is nearly every Commit: each stream is known, and its batches have no producer id or follow
   its last writer's sequence. All batches are looked at before anything is changed. At the first
   that is anything else the kernel declines, and `domain/judge.py`, its twin, judges them all. */

#include <stdlib.h>

#include "commit.h"
#include "functions.h"

enum { NONE = -1, WINDOW_BATCHES = 5 };
static const int64_t SEQUENCE_END = INT64_C(1) << 31;

typedef struct {
    const int64_t *ids, *rows; /* by rising id */
    int64_t id_count;
    int64_t *heads, *live_bytes, *entries, *writers, *changed;
    int64_t row_count;
} StreamColumns;

typedef struct {
    const int64_t *producers;
    const int16_t *epochs;
    int64_t *next;
    int8_t *newest;
    int64_t *times;
    int64_t *first, *counts, *offsets, *timestamps; /* of windows, five a row */
    int64_t row_count;
} ProducerColumns;

typedef struct {
    int32_t *streams;
    int64_t *starts, *ends;
    int32_t *objects;
    int64_t *byte_starts, *byte_lengths, *times, *previous;
    int64_t room;
} EntryColumns;

/* One stream's batches [start, end), and the row of the stream. */
typedef struct {
    int64_t start, end, row;
} Run;

typedef struct {
    CommitColumns commit;
    StreamColumns streams;
    ProducerColumns producers;
    EntryColumns entries;
    int64_t position, time_ms, object, first_entry;
    int64_t *offsets;
    Run *runs;
    int64_t run_count;
} Judgement;

static inline int64_t count_at(const CommitColumns *commit, int64_t number) {
    return uint_at(commit->counts, number);
}

/* --- first everything is looked at ---------------------------------------------------------- */

/* The place of a stream's id from `place` on, or -1. */
static int64_t find_id(const StreamColumns *streams, int64_t place, int64_t id) {
    int64_t end = streams->id_count;
    while (place < end) {
        int64_t middle = place + (end - place) / 2;
        if (streams->ids[middle] < id) {
            place = middle + 1;
        } else {
            end = middle;
        }
    }
    return place < streams->id_count && streams->ids[place] == id ? place : -1;
}

/* Whether a run's batches all follow the sequence of its stream's last writer. */
static bool goes_on(const Judgement *judgement, const Run *run) {
    const CommitColumns *commit = &judgement->commit;
    const ProducerColumns *table = &judgement->producers;
    int64_t writer = judgement->streams.writers[run->row];
    if (writer < 0 || writer >= table->row_count || table->newest[writer] < 0
        || table->newest[writer] >= WINDOW_BATCHES) {
        return false;
    }
    int64_t expected = table->next[writer];
    for (int64_t at = run->start; at < run->end; at++) {
        int64_t sequence = sequence_at(commit, at);
        if (long_at(commit->producers, at) != table->producers[writer]
            || epoch_at(commit, at) != table->epochs[writer] || sequence != expected
            || sequence < 0) {
            return false;
        }
        expected = (sequence + count_at(commit, at)) % SEQUENCE_END;
    }
    return true;
}

static bool has_no_producer(const CommitColumns *commit, const Run *run) {
    for (int64_t at = run->start; at < run->end; at++) {
        if (long_at(commit->producers, at) >= 0) {
            return false;
        }
    }
    return true;
}

/* Find the runs; whether all of them are in order. */
static bool look(Judgement *judgement) {
    const CommitColumns *commit = &judgement->commit;
    int64_t place = -1;
    for (int64_t start = 0, end; start < commit->batches; start = end) {
        int64_t stream = long_at(commit->streams, start);
        end = start + 1;
        while (end < commit->batches && long_at(commit->streams, end) == stream) {
            end++;
        }
        place = find_id(&judgement->streams, place + 1, stream);
        if (place < 0) {
            return false;
        }
        Run run = {start, end, judgement->streams.rows[place]};
        if (run.row < 0 || run.row >= judgement->streams.row_count
            || judgement->first_entry + judgement->run_count >= judgement->entries.room) {
            return false;
        }
        bool has_producer = long_at(commit->producers, start) >= 0;
        if (!(has_producer ? goes_on(judgement, &run) : has_no_producer(commit, &run))) {
            return false;
        }
        judgement->runs[judgement->run_count++] = run;
    }
    return true;
}

/* --- then everything is taken in ------------------------------------------------------------ */

static void assign_offsets(Judgement *judgement, const Run *run) {
    int64_t head = judgement->streams.heads[run->row];
    for (int64_t at = run->start; at < run->end; at++) {
        judgement->offsets[at] = head;
        head = wrapping_add(head, count_at(&judgement->commit, at));
    }
    judgement->streams.heads[run->row] = head;
}

/* Remember the last batches of a producer; a window has no room for more of them. */
static void push_window(Judgement *judgement, const Run *run) {
    const CommitColumns *commit = &judgement->commit;
    ProducerColumns *table = &judgement->producers;
    int64_t writer = judgement->streams.writers[run->row];
    for (int64_t at = max64(run->start, run->end - WINDOW_BATCHES); at < run->end; at++) {
        int8_t place = (int8_t)((table->newest[writer] + 1) % WINDOW_BATCHES);
        int64_t cell = writer * WINDOW_BATCHES + place;
        table->newest[writer] = place;
        table->first[cell] = sequence_at(commit, at);
        table->counts[cell] = count_at(commit, at);
        table->offsets[cell] = judgement->offsets[at];
        table->timestamps[cell] = long_at(commit->times, at);
        table->next[writer] = (table->first[cell] + table->counts[cell]) % SEQUENCE_END;
    }
    table->times[writer] = max64(table->times[writer], judgement->time_ms);
}

static void add_entry(Judgement *judgement, const Run *run, int64_t entry) {
    const CommitColumns *commit = &judgement->commit;
    EntryColumns *entries = &judgement->entries;
    StreamColumns *streams = &judgement->streams;
    int64_t last = run->end - 1, time = long_at(commit->times, run->start);
    for (int64_t at = run->start + 1; at < run->end; at++) {
        time = max64(time, long_at(commit->times, at));
    }
    int64_t byte_start = uint_at(commit->byte_starts, run->start);
    int64_t byte_end = (int64_t)uint_at(commit->byte_starts, last)
                       + uint_at(commit->byte_lengths, last);
    entries->streams[entry] = (int32_t)run->row;
    entries->starts[entry] = judgement->offsets[run->start];
    entries->ends[entry] = streams->heads[run->row];
    entries->objects[entry] = (int32_t)judgement->object;
    entries->byte_starts[entry] = byte_start;
    entries->byte_lengths[entry] = byte_end - byte_start;
    entries->times[entry] = time;
    entries->previous[entry] = streams->entries[run->row];
    streams->entries[run->row] = entry;
    streams->live_bytes[run->row] =
        wrapping_add(streams->live_bytes[run->row], byte_end - byte_start);
    streams->changed[run->row] = judgement->position;
}

static void take_in(Judgement *judgement) {
    for (int64_t number = 0; number < judgement->run_count; number++) {
        const Run *run = &judgement->runs[number];
        assign_offsets(judgement, run);
        if (long_at(judgement->commit.producers, run->start) >= 0) {
            push_window(judgement, run);
        }
        add_entry(judgement, run, judgement->first_entry + number);
    }
}

/* --- arguments ------------------------------------------------------------------------------ */

/* One column of a table: where its address goes, and what an item has. */
typedef struct {
    void *address;
    int itemsize, width;
    bool writable;
} Column;

/* The columns out of a tuple, all of the same number of rows; false with a Python error. */
static bool read_columns(Buffers *buffers, PyObject *tuple, const Column *columns, int count,
                         int64_t *rows) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %d columns is wanted", count);
        return false;
    }
    for (int number = 0; number < count; number++) {
        const Column *column = &columns[number];
        int64_t items;
        void *found = buffers_items(buffers, PyTuple_GetItem(tuple, number), column->itemsize,
                                    column->writable, &items);
        if (found == NULL) {
            return false;
        }
        if (items % column->width != 0 || (number > 0 && items / column->width != *rows)) {
            refuse("columns of different lengths");
            return false;
        }
        *rows = items / column->width;
        memcpy(column->address, &found, sizeof found);
    }
    return true;
}

static bool read_tables(Buffers *buffers, PyObject *const *args, Judgement *judgement) {
    StreamColumns *streams = &judgement->streams;
    ProducerColumns *producers = &judgement->producers;
    EntryColumns *entries = &judgement->entries;
    const Column known[] = {{&streams->ids, 8, 1, false}, {&streams->rows, 8, 1, false}};
    const Column of_streams[] = {{&streams->heads, 8, 1, true},
                                 {&streams->live_bytes, 8, 1, true},
                                 {&streams->entries, 8, 1, true},
                                 {&streams->writers, 8, 1, true},
                                 {&streams->changed, 8, 1, true}};
    const Column of_producers[] = {{&producers->producers, 8, 1, false},
                                   {&producers->epochs, 2, 1, false},
                                   {&producers->next, 8, 1, true},
                                   {&producers->newest, 1, 1, true},
                                   {&producers->times, 8, 1, true},
                                   {&producers->first, 8, WINDOW_BATCHES, true},
                                   {&producers->counts, 8, WINDOW_BATCHES, true},
                                   {&producers->offsets, 8, WINDOW_BATCHES, true},
                                   {&producers->timestamps, 8, WINDOW_BATCHES, true}};
    const Column of_entries[] = {
        {&entries->streams, 4, 1, true},      {&entries->starts, 8, 1, true},
        {&entries->ends, 8, 1, true},         {&entries->objects, 4, 1, true},
        {&entries->byte_starts, 8, 1, true},  {&entries->byte_lengths, 8, 1, true},
        {&entries->times, 8, 1, true},        {&entries->previous, 8, 1, true}};
    return read_columns(buffers, args[1], known, 2, &streams->id_count)
           && read_columns(buffers, args[2], of_streams, 5, &streams->row_count)
           && read_columns(buffers, args[3], of_producers, 9, &producers->row_count)
           && read_columns(buffers, args[4], of_entries, 8, &entries->room);
}

/* judge_in_order(commit, known, streams, producers, entries, (position, time_ms, object,
                  first_entry), offsets) -> how many entries were added, or -1 when it declines */
static PyObject *call_judge_in_order(PyObject *const *args, Buffers *buffers) {
    Judgement judgement = {0};
    int64_t numbers[4], offsets;
    if (!read_commit(buffers, args[0], &judgement.commit)
        || !read_tables(buffers, args, &judgement) || !read_tuple(args[5], 4, numbers)) {
        return NULL;
    }
    judgement.offsets = buffers_items(buffers, args[6], 8, true, &offsets);
    if (judgement.offsets == NULL) {
        return NULL;
    }
    if (offsets != judgement.commit.batches || numbers[3] < 0) {
        return refuse("offsets and entries do not fit the Commit");
    }
    judgement.position = numbers[0];
    judgement.time_ms = numbers[1];
    judgement.object = numbers[2];
    judgement.first_entry = numbers[3];
    judgement.runs = malloc(sizeof(Run) * (size_t)max64(judgement.commit.batches, 1));
    if (judgement.runs == NULL) {
        return PyErr_NoMemory();
    }
    bool in_order = look(&judgement);
    if (in_order) {
        take_in(&judgement);
    }
    free(judgement.runs);
    return PyLong_FromLongLong(in_order ? judgement.run_count : NONE);
}

KERNEL(judge_in_order, 7)
