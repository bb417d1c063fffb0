"""Bugs in what Kafka's tools ask for: configs of brokers, leaders, answers of the admin APIs."""

from tests.mutants.plant import Plant, plant

ROUTING = ("tests/topics/test_routing.py",)
BROKER_CONFIGS = ("tests/topics/test_broker_configs.py",)

PLANTS: tuple[Plant, ...] = (
    plant(
        "retention by defaults that were altered meanwhile",
        "topics/changes.py",
        "    await configs.current()",
        "    configs.altered()",
        tests=("tests/topics/test_changes_retention.py",),
    ),
    plant(
        "a topic changed meanwhile keeps the old defaults",
        "topics/key_cache.py",
        "        if in_force != value.settings:",
        "        if False:",
        tests=("tests/topics/test_key_cache_topics.py",),
    ),
    plant(
        "a config for all brokers hides a broker's own",
        "topics/broker_configs.py",
        "        return (*self.altered(), self._static)",
        "        return (*reversed(self.altered()), self._static)",
        tests=BROKER_CONFIGS,
    ),
    plant(
        "two writers of broker configs overwrite each other",
        "topics/broker_configs.py",
        "await self._store.put(keys.BROKER_CONFIGS, value, expect=version)",
        "await self._store.put(keys.BROKER_CONFIGS, value, expect=None)",
        tests=BROKER_CONFIGS,
    ),
    plant(
        "a default that contradicts a topic makes its key unreadable",
        "topics/topic.py",
        "settings=in_effect(key.configs, defaults)",
        "settings=__import__('lakelog.topics.settings', fromlist=['x']).settings("
        "key.configs, defaults)",
        tests=BROKER_CONFIGS,
    ),
    plant(
        "leaders by rank alone",
        "topics/routing.py",
        " if led[broker] < limit)",
        ")",
        tests=ROUTING,
    ),
    plant(
        "one broker too many leads one partition more",
        "topics/routing.py",
        "        more -= led[leader] == least\n",
        "",
        tests=ROUTING,
    ),
    plant(
        "leaders dealt out in turn",
        "topics/routing.py",
        "in ranks[stream % SLOTS] if",
        "in sorted(led, key=lambda one: (one - stream) % len(led)) if",
        tests=ROUTING,
    ),
)
