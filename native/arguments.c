/* Arguments of kernels as plain memory. */

#include "kernel.h"

void buffers_release(Buffers *buffers) {
    while (buffers->count > 0) {
        PyBuffer_Release(&buffers->views[--buffers->count]);
    }
}

static Py_buffer *next_view(Buffers *buffers, PyObject *object, int flags) {
    if (buffers->count == BUFFERS_MAX) {
        PyErr_SetString(PyExc_SystemError, "a kernel takes more buffers than it may");
        return NULL;
    }
    Py_buffer *view = &buffers->views[buffers->count];
    if (PyObject_GetBuffer(object, view, flags) < 0) {
        return NULL;
    }
    buffers->count++;
    return view;
}

const uint8_t *buffers_bytes(Buffers *buffers, PyObject *object, int64_t *size) {
    Py_buffer *view = next_view(buffers, object, PyBUF_SIMPLE);
    if (view == NULL) {
        return NULL;
    }
    *size = view->len;
    /* An empty buffer may have no address, and NULL says that something went wrong. */
    return view->buf != NULL ? view->buf : (const uint8_t *)"";
}

void *buffers_items(Buffers *buffers, PyObject *object, int itemsize, bool writable,
                    int64_t *count) {
    int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    Py_buffer *view = next_view(buffers, object, flags);
    if (view == NULL) {
        return NULL;
    }
    if (view->itemsize != itemsize) {
        PyErr_Format(PyExc_TypeError, "items of %d bytes are wanted, not of %zd", itemsize,
                     view->itemsize);
        return NULL;
    }
    if ((uintptr_t)view->buf % (size_t)itemsize != 0 && view->len > 0) {
        PyErr_SetString(PyExc_ValueError, "items do not lie where their size wants them");
        return NULL;
    }
    *count = view->len / itemsize;
    return view->buf != NULL ? view->buf : "";
}

void *buffers_rows(Buffers *buffers, PyObject *object, int itemsize, bool writable, int64_t rows,
                   int64_t *columns) {
    int64_t count;
    void *items = buffers_items(buffers, object, itemsize, writable, &count);
    if (items == NULL) {
        return NULL;
    }
    const Py_buffer *view = &buffers->views[buffers->count - 1];
    if (view->ndim < 2 || view->shape[0] != rows) {
        PyErr_Format(PyExc_ValueError, "an array of %lld rows is wanted", (long long)rows);
        return NULL;
    }
    *columns = count / rows;
    return items;
}

PyObject *refuse(const char *reason) {
    PyErr_SetString(PyExc_ValueError, reason);
    return NULL;
}

bool argument_count_is(const char *name, Py_ssize_t found, Py_ssize_t wanted) {
    if (found != wanted) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, found);
        return false;
    }
    return true;
}

bool read_int64s(PyObject *const *objects, int count, int64_t *values) {
    for (int number = 0; number < count; number++) {
        values[number] = PyLong_AsLongLong(objects[number]);
        if (values[number] == -1 && PyErr_Occurred()) {
            return false;
        }
    }
    return true;
}

bool read_tuple(PyObject *tuple, int count, int64_t *values) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %d integers is wanted", count);
        return false;
    }
    for (int number = 0; number < count; number++) {
        PyObject *item = PyTuple_GetItem(tuple, number);
        if (!read_int64s(&item, 1, &values[number])) {
            return false;
        }
    }
    return true;
}
