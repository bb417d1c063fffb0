/* Walking over the frames of one connection (`wire/framing.py`). */

#include "functions.h"
#include "kernel.h"

enum { SIZE_BYTES = 4, HEAD_BYTES = 6 }; /* the size of a frame, and the API key that begins it */

/* find_run(data, start, end, size_min, size_max) -> (end, frames) */
PyObject *native_find_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    Buffers buffers = {.count = 0};
    int64_t bytes, numbers[4];
    if (!argument_count_is("find_run", nargs, 5) || !read_int64s(args + 1, 4, numbers)) {
        return NULL;
    }
    const uint8_t *data = buffers_bytes(&buffers, args[0], &bytes);
    if (data == NULL) {
        return NULL;
    }
    int64_t start = numbers[0], end = numbers[1], size_min = numbers[2], size_max = numbers[3];
    int64_t position = start, frames = 0;
    if (start < 0 || end > bytes || end - start < HEAD_BYTES) {
        buffers_release(&buffers);
        PyErr_SetString(PyExc_ValueError, "no frame begins there");
        return NULL;
    }
    uint16_t key = load_be16(data + start + SIZE_BYTES);
    while (end - position >= HEAD_BYTES) {
        int64_t size = (int32_t)load_be32(data + position);
        if (load_be16(data + position + SIZE_BYTES) != key || size < size_min || size > size_max
            || size > end - position - SIZE_BYTES || size < 0) {
            break;
        }
        position += SIZE_BYTES + size;
        frames++;
    }
    buffers_release(&buffers);
    return Py_BuildValue("LL", position, frames);
}
