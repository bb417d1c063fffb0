/* The topics that plain Produce requests may name, and how one is found. */

#ifndef LAKELOG_TOPICS_H
#define LAKELOG_TOPICS_H

#include "kernel.h"

/* The topics that plain requests may name: `broker/produce_topics.py`. */
enum {
    TOPIC_KEY_START,    /* its name, or its id, in the keys */
    TOPIC_KEY_LENGTH,
    TOPIC_FIRST_STREAM, /* of its partitions, in the streams */
    TOPIC_PARTITIONS,
    TOPIC_BYTES_MAX,    /* of a batch */
    TOPIC_BEFORE_MS,    /* how far timestamps may lie before and after now */
    TOPIC_AFTER_MS,
    TOPIC_KEYED,        /* whether every record needs a key */
    TOPIC_APPEND_TIME,  /* whether the broker's time replaces the records' */
    TOPIC_COLUMNS
};

typedef struct {
    const int64_t *slots; /* number of a topic or -1, by the hash of its key; a power of two */
    const uint8_t *keys;
    const int64_t *topics, *streams;
    int64_t *marks; /* per stream: the last request that named it */
    int64_t slot_count, key_bytes, topic_count, stream_count;
} TopicTable;

/* The table's buffers out of their tuple; false with a Python error. */
bool read_table(Buffers *buffers, PyObject *tuple, TopicTable *table);

/* The topic of that name or id, or NULL. */
const int64_t *find_topic(const TopicTable *table, const uint8_t *key, int64_t length);

#endif
