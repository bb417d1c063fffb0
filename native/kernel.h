/* What every kernel needs: arguments as plain memory, and numbers out of bytes.

   Rules of all kernels:

   - Each has a twin in Python that gives the same answer, byte for byte; a differential test and a
     fuzzer hold the two together.
   - Whatever bytes come, nothing is read or written outside the buffers that were passed: a length
     is compared with what is left before it is used. Additions that hostile numbers can overflow
     are made in unsigned arithmetic, or are bounded first.
   - Memory is the caller's. A kernel that needs scratch room takes it with malloc and frees it.
   - The GIL is released around everything that takes longer than taking it again. */

#ifndef LAKELOG_KERNEL_H
#define LAKELOG_KERNEL_H

#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* --- arguments ------------------------------------------------------------------------------ */

enum { BUFFERS_MAX = 40 };

/* The buffers of one call, released together. */
typedef struct {
    Py_buffer views[BUFFERS_MAX];
    int count;
} Buffers;

void buffers_release(Buffers *buffers);

/* Bytes that are only read; NULL with a Python error when `object` has none. */
const uint8_t *buffers_bytes(Buffers *buffers, PyObject *object, int64_t *size);

/* Contiguous items of `itemsize` bytes; `count` is how many. Writable when asked for. */
void *buffers_items(Buffers *buffers, PyObject *object, int itemsize, bool writable,
                    int64_t *count);

/* The same of an array whose first dimension is `rows`; `columns` is how many items a row has. */
void *buffers_rows(Buffers *buffers, PyObject *object, int itemsize, bool writable, int64_t rows,
                   int64_t *columns);

/* Defines the module's function `native_<name>`, which takes `wanted` arguments: `call_<name>` gets
   them, and the buffers that it takes are released after it. */
#define KERNEL(name, wanted)                                                             \
    PyObject *native_##name(PyObject *module, PyObject *const *args, Py_ssize_t nargs) { \
        (void)module;                                                                    \
        if (!argument_count_is(#name, nargs, wanted)) {                                  \
            return NULL;                                                                 \
        }                                                                                \
        Buffers buffers;                                                                 \
        buffers.count = 0;                                                               \
        PyObject *answer = call_##name(args, &buffers);                                  \
        buffers_release(&buffers);                                                       \
        return answer;                                                                   \
    }

/* Let other threads run while so many bytes are gone through; NULL where that is done sooner than
   the GIL could be taken again, for which a busy thread may make us wait 5 ms. */
static inline PyThreadState *allow_threads(int64_t bytes) {
    return bytes > 16 * 1024 ? PyEval_SaveThread() : NULL;
}

static inline void end_allow_threads(PyThreadState *state) {
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
}

/* NULL with a Python error: an argument is of a kind that is right, but not its value. */
PyObject *refuse(const char *reason);

/* False with a Python error when the number of arguments is another. */
bool argument_count_is(const char *name, Py_ssize_t found, Py_ssize_t wanted);

/* Fill `values` from Python integers; false with a Python error. */
bool read_int64s(PyObject *const *objects, int count, int64_t *values);

/* The same from a tuple of exactly so many. */
bool read_tuple(PyObject *tuple, int count, int64_t *values);

/* --- numbers -------------------------------------------------------------------------------- */

static inline uint16_t load_be16(const uint8_t *at) {
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t load_be32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap32(value);
}

static inline uint64_t load_be64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap64(value);
}

static inline uint64_t load_64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void store_be16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static inline void store_be32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, sizeof value);
}

static inline void store_be64(uint8_t *at, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(at, &value, sizeof value);
}

static inline int64_t min64(int64_t one, int64_t other) { return one < other ? one : other; }
static inline int64_t max64(int64_t one, int64_t other) { return one > other ? one : other; }

/* The sum as Java and numpy have it: it wraps. */
static inline int64_t wrapping_add(int64_t one, int64_t other) {
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels are written for little-endian machines; build without them"
#endif

/* --- processors ----------------------------------------------------------------------------- */

/* A loop that is compiled twice, and chosen when the module is loaded: with AVX2 and BMI2 it takes
   up to a third less, as shifts by a variable number of bits are one step there. Only for static
   functions: the name of any other would be seen outside of the module. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define FOR_THIS_PROCESSOR __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define FOR_THIS_PROCESSOR
#endif

/* Several rounds of the loop that follows at once, where rounds do not wait for each other. */
#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll_count(4)")
#elif defined(__GNUC__)
#define UNROLLED _Pragma("GCC unroll 4")
#else
#define UNROLLED
#endif

/* --- CRC-32C -------------------------------------------------------------------------------- */

/* The checksum of `size` bytes that follow those whose checksum is `crc` (0: none). */
uint32_t crc32c(uint32_t crc, const uint8_t *data, size_t size);

/* The checksum of two parts from those of each, the second of `size` bytes. */
uint32_t crc32c_joined(uint32_t first, uint32_t second, size_t size);

/* Choose the way to compute it, once, when the module is loaded. */
void crc32c_prepare(void);

#endif
