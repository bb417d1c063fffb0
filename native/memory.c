/* How the allocator treats memory that was freed.

   By default large blocks are mapped when they are wanted and unmapped when they are freed, and
   every page of a mapped block is faulted in and zeroed anew. A broker takes and frees buffers of
   megabytes all the time: they had better come from memory that the process has. */

#include "functions.h"
#include "kernel.h"

#if defined(__GLIBC__)
#include <malloc.h>

enum { MAPPED_BYTES_MIN = 64 << 20 };

static bool set_limits(int64_t kept_bytes) {
    return mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN) == 1
           && mallopt(M_TRIM_THRESHOLD, (int)kept_bytes) == 1;
}
#else
static bool set_limits(int64_t kept_bytes) {
    (void)kept_bytes;
    return false;
}
#endif

/* keep_freed_memory(bytes) -> whether this allocator can be told so */
static PyObject *call_keep_freed_memory(PyObject *const *args, Buffers *buffers) {
    (void)buffers;
    int64_t kept_bytes;
    if (!read_int64s(args, 1, &kept_bytes)) {
        return NULL;
    }
    if (kept_bytes < 0 || kept_bytes > INT32_MAX) {
        return refuse("from 0 to 2 GiB can be kept");
    }
    return PyBool_FromLong(set_limits(kept_bytes));
}

KERNEL(keep_freed_memory, 1)
