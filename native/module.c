/* The module `lakelog._native`: loops over bytes that Python would take too long for.

   answers.c    answers of Produce requests
   arguments.c  arguments as plain memory
   build.c      records written from columns, and the hash of their keys
   columns.c    where the fields of records lie, and views of them
   commit.c     the columns of a Commit
   crc32c.c     checksums
   cut.c        batches cut from a run for a Fetch answer
   fetched.c    the batches of a Fetch answer as columns (batches.h has those of their headers)
   frames.c     frames of a connection
   gather.c     batches laid out as a WAL object
   judge.c      Commits whose batches go on where their streams stand
   memory.c     what the allocator keeps
   ordering.c   rows of several sources merged by their time (sources.c, sorting.c)
   produce.c    Produce requests as rows (cursor.h reads one, topics.c finds its topics)
   runs.c       batches of a WAL object, each behind its length
   scan.c       the records of a batch, checked (records.h reads one) */

#include "functions.h"
#include "kernel.h"

#define FUNCTION(name) \
    {#name, (PyCFunction)(void (*)(void))native_##name, METH_FASTCALL, NULL}

/* crc32c(data, crc) -> int */
PyObject *native_crc32c(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    Buffers buffers = {.count = 0};
    int64_t size, crc;
    if (!argument_count_is("crc32c", nargs, 2) || !read_int64s(args + 1, 1, &crc)) {
        return NULL;
    }
    const uint8_t *data = buffers_bytes(&buffers, args[0], &size);
    if (data == NULL) {
        return NULL;
    }
    uint32_t sum;
    Py_BEGIN_ALLOW_THREADS
    sum = crc32c((uint32_t)crc, data, (size_t)size);
    Py_END_ALLOW_THREADS
    buffers_release(&buffers);
    return PyLong_FromUnsignedLong(sum);
}

static PyMethodDef functions[] = {
    FUNCTION(answer_produce),
    FUNCTION(hash_places),
    FUNCTION(write_records),
    FUNCTION(fill_columns),
    FUNCTION(fill_headers),
    FUNCTION(fill_views),
    FUNCTION(is_sound_commit),
    FUNCTION(pack_commit),
    FUNCTION(cut_batches),
    FUNCTION(fill_rows),
    FUNCTION(walk_batches),
    FUNCTION(find_run),
    FUNCTION(lay_out),
    FUNCTION(judge_in_order),
    FUNCTION(keep_freed_memory),
    FUNCTION(crc32c),
    FUNCTION(choose_rows),
    FUNCTION(gather_rows),
    FUNCTION(merge_rows),
    FUNCTION(parse_produce),
    FUNCTION(find_batches),
    FUNCTION(walk_run),
    FUNCTION(scan),
    FUNCTION(stable_order),
    FUNCTION(row_source),
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "lakelog._native",
    .m_doc = "Loops over bytes that Python would take too long for.",
    .m_size = 0,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__native(void) {
    crc32c_prepare();
    return PyModule_Create(&definition);
}
