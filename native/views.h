/* Arrow's binary views: 16 bytes a value, the length first.

   A value of up to 12 bytes follows its length. Of a longer one its first four bytes do, then the
   number of the buffer that holds it, here 0, and its place there. What is not used is zero. */

#ifndef LAKELOG_VIEWS_H
#define LAKELOG_VIEWS_H

#include "kernel.h"

enum { VIEW_BYTES = 16, INLINE_BYTES = 12 };

/* The first 1 to 8 bytes of a word, and zeros after them. */
static inline uint64_t first_bytes(uint64_t word, int64_t count) {
    int missing = 64 - 8 * (int)count;
    return word << missing >> missing;
}

static inline void store_view(uint8_t *view, uint64_t first, uint64_t second) {
    memcpy(view, &first, sizeof first);
    memcpy(view + 8, &second, sizeof second);
}

/* The view of a short value where loads of eight bytes would pass the end. */
static __attribute__((noinline, unused)) void write_last_view(uint8_t *view, const uint8_t *value,
                                                              int64_t length) {
    uint8_t made[VIEW_BYTES] = {(uint8_t)length};
    memcpy(made + 4, value, (size_t)length);
    memcpy(view, made, VIEW_BYTES);
}

/* The view of `length` bytes at `start`, which lie within `data`; null, as the empty value, is all
   zero, whatever its start. */
static inline void write_view(uint8_t *view, const uint8_t *data, int64_t size, int64_t start,
                              int64_t length) {
    if (length > INLINE_BYTES) {
        store_view(view, (uint64_t)length | load_64(data + start) << 32, (uint64_t)start << 32);
    } else if (length <= 0) {
        store_view(view, 0, 0);
    } else if (size - start < INLINE_BYTES) {
        write_last_view(view, data + start, length);
    } else {
        uint64_t prefix = first_bytes(load_64(data + start), min64(length, 4));
        uint64_t rest = length > 4 ? first_bytes(load_64(data + start + 4), length - 4) : 0;
        store_view(view, (uint64_t)length | prefix << 32, rest);
    }
}

#endif
