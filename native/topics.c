/* Finding a topic by its name or id (`broker/produce_topics.py` makes the table). */

#include "topics.h"

/* FNV-1a; `produce_topics.py` computes the same. */
static uint64_t hash_of(const uint8_t *key, int64_t length) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t at = 0; at < length; at++) {
        hash = (hash ^ key[at]) * 0x100000001B3u;
    }
    return hash;
}

const int64_t *find_topic(const TopicTable *table, const uint8_t *key, int64_t length) {
    uint64_t mask = (uint64_t)table->slot_count - 1;
    uint64_t slot = hash_of(key, length) & mask;
    for (int64_t tried = 0; tried < table->slot_count; tried++, slot = (slot + 1) & mask) {
        int64_t number = table->slots[slot];
        if (number < 0 || number >= table->topic_count) {
            return NULL;
        }
        const int64_t *topic = table->topics + number * TOPIC_COLUMNS;
        if (topic[TOPIC_KEY_LENGTH] == length && topic[TOPIC_KEY_START] >= 0
            && topic[TOPIC_KEY_START] <= table->key_bytes - length
            && memcmp(table->keys + topic[TOPIC_KEY_START], key, (size_t)length) == 0) {
            return topic;
        }
    }
    return NULL;
}

bool read_table(Buffers *buffers, PyObject *tuple, TopicTable *table) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != 5) {
        PyErr_SetString(PyExc_TypeError, "slots, keys, topics, streams and marks are wanted");
        return false;
    }
    int64_t marks, items;
    table->slots = buffers_items(buffers, PyTuple_GetItem(tuple, 0), 8, false, &table->slot_count);
    if (table->slots == NULL) {
        return false;
    }
    table->keys = buffers_bytes(buffers, PyTuple_GetItem(tuple, 1), &table->key_bytes);
    if (table->keys == NULL) {
        return false;
    }
    table->topics = buffers_items(buffers, PyTuple_GetItem(tuple, 2), 8, false, &items);
    if (table->topics == NULL) {
        return false;
    }
    table->topic_count = items / TOPIC_COLUMNS;
    table->streams =
        buffers_items(buffers, PyTuple_GetItem(tuple, 3), 8, false, &table->stream_count);
    if (table->streams == NULL) {
        return false;
    }
    table->marks = buffers_items(buffers, PyTuple_GetItem(tuple, 4), 8, true, &marks);
    if (table->marks == NULL) {
        return false;
    }
    if (table->slot_count < 1 || (table->slot_count & (table->slot_count - 1)) != 0
        || marks != table->stream_count) {
        refuse("the table's parts do not fit together");
        return false;
    }
    return true;
}
