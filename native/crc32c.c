/* CRC-32C by the processor's instruction where it has one, else by tables.

   The instruction takes eight bytes but three cycles, and three can be under way at once. So long
   data is summed as three parts side by side; a part's sum is then moved over the bytes that
   follow it, by tables that say what a number of zero bytes does to a checksum. */

#include "kernel.h"

#define POLYNOMIAL 0x82F63B78u /* reflected */

enum { LANE_BYTES = 1024 }; /* of each part: a batch of a few kilobytes has all three */

static uint32_t bytewise[8][256];
static uint32_t over_lane[4][256]; /* LANE_BYTES zeros behind each byte of a checksum */

typedef uint32_t (*Update)(uint32_t state, const uint8_t *data, size_t size);

/* The state after `size` zero bytes, by the definition. */
static uint32_t over_zeros(uint32_t state, size_t size) {
    for (size_t count = 0; count < size; count++) {
        state = bytewise[0][state & 0xFF] ^ (state >> 8);
    }
    return state;
}

static uint32_t move_over_lane(uint32_t state) {
    return over_lane[0][state & 0xFF] ^ over_lane[1][state >> 8 & 0xFF]
           ^ over_lane[2][state >> 16 & 0xFF] ^ over_lane[3][state >> 24];
}

static uint32_t update_by_tables(uint32_t state, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = load_64(data) ^ state;
        state = 0;
        for (int byte = 0; byte < 8; byte++) {
            state ^= bytewise[7 - byte][word >> 8 * byte & 0xFF];
        }
    }
    for (; size > 0; data++, size--) {
        state = bytewise[0][(state ^ *data) & 0xFF] ^ (state >> 8);
    }
    return state;
}

#if defined(__x86_64__)
#include <nmmintrin.h>
#define WITH_CRC __attribute__((target("sse4.2")))
#define CRC_WORD(state, word) _mm_crc32_u64(state, word)
#define CRC_BYTE(state, byte) _mm_crc32_u8((uint32_t)(state), byte)
static bool has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__)
#include <arm_acle.h>
#define WITH_CRC __attribute__((target("+crc")))
#define CRC_WORD(state, word) __crc32cd((uint32_t)(state), word)
#define CRC_BYTE(state, byte) __crc32cb((uint32_t)(state), byte)
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
static bool has_instruction(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
static bool has_instruction(void) { return true; } /* every Apple processor of this kind has it */
#endif
#endif

#if defined(WITH_CRC)
WITH_CRC static uint32_t update_by_instruction(uint32_t start, const uint8_t *data, size_t size) {
    uint64_t state = start;
    for (; size >= 3 * LANE_BYTES; data += 3 * LANE_BYTES, size -= 3 * LANE_BYTES) {
        uint64_t second = 0, third = 0;
        for (size_t at = 0; at < LANE_BYTES; at += 8) {
            state = CRC_WORD(state, load_64(data + at));
            second = CRC_WORD(second, load_64(data + LANE_BYTES + at));
            third = CRC_WORD(third, load_64(data + 2 * LANE_BYTES + at));
        }
        state = move_over_lane((uint32_t)state) ^ second;
        state = move_over_lane((uint32_t)state) ^ third;
    }
    for (; size >= 8; data += 8, size -= 8) {
        state = CRC_WORD(state, load_64(data));
    }
    for (; size > 0; data++, size--) {
        state = CRC_BYTE(state, *data);
    }
    return (uint32_t)state;
}
#endif

static Update update = update_by_tables;

void crc32c_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++) {
            state = state & 1 ? state >> 1 ^ POLYNOMIAL : state >> 1;
        }
        bytewise[0][byte] = state;
    }
    for (int table = 1; table < 8; table++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t state = bytewise[table - 1][byte];
            bytewise[table][byte] = bytewise[0][state & 0xFF] ^ (state >> 8);
        }
    }
    for (int place = 0; place < 4; place++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            over_lane[place][byte] = over_zeros(byte << 8 * place, LANE_BYTES);
        }
    }
#if defined(WITH_CRC)
    if (has_instruction()) {
        update = update_by_instruction;
    }
#endif
}

uint32_t crc32c(uint32_t crc, const uint8_t *data, size_t size) {
    return ~update(~crc, data, size);
}

/* The product of two polynomials modulo the CRC's; the highest bit is the constant term. */
static uint32_t product(uint32_t one, uint32_t other) {
    uint32_t sum = 0;
    for (int bit = 31; bit >= 0; bit--) {
        sum ^= one >> bit & 1 ? other : 0;
        other = other >> 1 ^ (other & 1 ? POLYNOMIAL : 0);
    }
    return sum;
}

uint32_t crc32c_joined(uint32_t first, uint32_t second, size_t size) {
    uint32_t power = 1u << 23; /* x to the 8th: what one byte more does to a checksum */
    for (; size > 0; size >>= 1) {
        if (size & 1) {
            first = product(power, first);
        }
        power = product(power, power);
    }
    return first ^ second;
}
