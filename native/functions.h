/* Every function of the module `lakelog._native`; `src/lakelog/_native.pyi` has their types. */

#ifndef LAKELOG_FUNCTIONS_H
#define LAKELOG_FUNCTIONS_H

#include <Python.h>

#define NATIVE_FUNCTION(name) PyObject *name(PyObject *, PyObject *const *, Py_ssize_t)

NATIVE_FUNCTION(native_crc32c);
NATIVE_FUNCTION(native_scan);

#endif
