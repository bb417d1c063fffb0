/* Every function of the module `lakelog._native`; `src/lakelog/_native.pyi` has their types. */

#ifndef LAKELOG_FUNCTIONS_H
#define LAKELOG_FUNCTIONS_H

#include <Python.h>

#define NATIVE_FUNCTION(name) PyObject *name(PyObject *, PyObject *const *, Py_ssize_t)

/* answers.c */
NATIVE_FUNCTION(native_answer_produce);

/* build.c */
NATIVE_FUNCTION(native_hash_places);
NATIVE_FUNCTION(native_write_records);

/* columns.c */
NATIVE_FUNCTION(native_fill_columns);
NATIVE_FUNCTION(native_fill_headers);
NATIVE_FUNCTION(native_fill_views);

/* commit.c */
NATIVE_FUNCTION(native_is_sound_commit);
NATIVE_FUNCTION(native_pack_commit);

/* cut.c */
NATIVE_FUNCTION(native_cut_batches);

/* fetched.c */
NATIVE_FUNCTION(native_fill_rows);
NATIVE_FUNCTION(native_walk_batches);

/* frames.c */
NATIVE_FUNCTION(native_find_run);

/* gather.c */
NATIVE_FUNCTION(native_lay_out);

/* judge.c */
NATIVE_FUNCTION(native_judge_in_order);

/* memory.c */
NATIVE_FUNCTION(native_keep_freed_memory);

/* module.c */
NATIVE_FUNCTION(native_crc32c);

/* ordering.c */
NATIVE_FUNCTION(native_choose_rows);
NATIVE_FUNCTION(native_gather_rows);
NATIVE_FUNCTION(native_merge_rows);

/* produce.c */
NATIVE_FUNCTION(native_parse_produce);

/* runs.c */
NATIVE_FUNCTION(native_find_batches);
NATIVE_FUNCTION(native_walk_run);

/* scan.c */
NATIVE_FUNCTION(native_scan);

/* sorting.c */
NATIVE_FUNCTION(native_stable_order);

/* sources.c */
NATIVE_FUNCTION(native_row_source);

#endif
