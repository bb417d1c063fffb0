/* Walking over the frames of one connection (`wire/framing.py`). */

#include "functions.h"
#include "kernel.h"

enum { SIZE_BYTES = 4, HEAD_BYTES = 6 }; /* the size of a frame, and the API key that begins it */

/* find_run(data, start, end, size_min, size_max) -> (end, frames) */
static PyObject *call_find_run(PyObject *const *args, Buffers *buffers) {
    int64_t bytes, numbers[4];
    const uint8_t *data = buffers_bytes(buffers, args[0], &bytes);
    if (data == NULL || !read_int64s(args + 1, 4, numbers)) {
        return NULL;
    }
    int64_t start = numbers[0], end = numbers[1], size_min = numbers[2], size_max = numbers[3];
    if (start < 0 || start > bytes || end > bytes || end - start < HEAD_BYTES) {
        return refuse("no frame begins there");
    }
    uint16_t key = load_be16(data + start + SIZE_BYTES);
    int64_t position = start, frames = 0;
    while (end - position >= HEAD_BYTES) {
        int64_t size = (int32_t)load_be32(data + position);
        if (load_be16(data + position + SIZE_BYTES) != key || size < max64(size_min, 0)
            || size > size_max || size > end - position - SIZE_BYTES) {
            break;
        }
        position += SIZE_BYTES + size;
        frames++;
    }
    return Py_BuildValue("LL", position, frames);
}

KERNEL(find_run, 5)
