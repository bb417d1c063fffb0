// A member on the Java client: both protocols. Reads until standard input ends; notes what happens
// to it as notes.py describes.

import java.io.FileWriter;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class GroupMember implements ConsumerRebalanceListener {
    private static final Duration POLL = Duration.ofMillis(100);
    private static GroupMember member;

    private final Map<String, String> job;
    private final FileWriter notes;
    private final Set<Integer> owned = new HashSet<>();
    private final Map<Integer, Long> pending = new TreeMap<>();
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final long partitions;
    private volatile boolean stopped = false;
    private int token = 0;

    /** Notes commits that the client makes by itself; they are acknowledged here and nowhere else. */
    public static final class Acknowledged implements ConsumerInterceptor<byte[], byte[]> {
        @Override
        public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> records) {
            return records;
        }

        @Override
        public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
            Map<Integer, Long> plain = new TreeMap<>();
            offsets.forEach((place, offset) -> plain.put(place.partition(), offset.offset()));
            if (!plain.isEmpty()) member.note("acked - " + shown(plain));
        }

        @Override
        public void close() {}

        @Override
        public void configure(Map<String, ?> settings) {}
    }

    private GroupMember(Map<String, String> job) throws IOException {
        this.job = job;
        this.notes = new FileWriter(job.get("notes"), true);
        this.partitions = Long.parseLong(job.get("partitions"));
        member = this;
        this.consumer = new KafkaConsumer<>(settings());
    }

    private Properties settings() {
        Properties found = new Properties();
        found.put("bootstrap.servers", job.get("bootstrap"));
        String instance = job.get("instance");
        found.put("client.id", instance.isEmpty() ? job.get("name") : instance);
        found.put("group.id", job.get("group"));
        found.put("auto.offset.reset", "earliest");
        found.put("key.deserializer", ByteArrayDeserializer.class.getName());
        found.put("value.deserializer", ByteArrayDeserializer.class.getName());
        found.put("enable.auto.commit", String.valueOf(automatic()));
        found.put("auto.commit.interval.ms", job.get("commit_every_ms"));
        found.put("fetch.max.wait.ms", "200");
        found.put("metadata.max.age.ms", job.get("metadata_ms"));
        found.put("reconnect.backoff.max.ms", "1000");
        found.put("max.poll.records", "2000");
        if (automatic()) found.put("interceptor.classes", Acknowledged.class.getName());
        if (!instance.isEmpty()) found.put("group.instance.id", instance);
        if (job.get("flavour").equals("consumer")) {
            found.put("group.protocol", "consumer");
            return found;
        }
        String assignors = "org.apache.kafka.clients.consumer.";
        Map<String, String> names =
                Map.of("range", "RangeAssignor", "roundrobin", "RoundRobinAssignor",
                        "cooperative", "CooperativeStickyAssignor");
        found.put("partition.assignment.strategy", assignors + names.get(job.get("flavour")));
        found.put("session.timeout.ms", job.get("session_ms"));
        found.put("heartbeat.interval.ms", job.get("heartbeat_ms"));
        return found;
    }

    private boolean automatic() {
        return job.get("commits").equals("automatic");
    }

    private synchronized void note(String text) {
        try {
            notes.write(System.currentTimeMillis() + " " + text + "\n");
            notes.flush();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static String shown(Collection<Integer> partitions) {
        String text = new TreeSet<>(partitions).stream().map(String::valueOf)
                .collect(Collectors.joining(","));
        return text.isEmpty() ? "-" : text;
    }

    private static String shown(Map<Integer, Long> offsets) {
        return offsets.entrySet().stream().map(each -> each.getKey() + ":" + each.getValue())
                .collect(Collectors.joining(","));
    }

    private static List<Integer> numbers(Collection<TopicPartition> places) {
        return places.stream().map(TopicPartition::partition).collect(Collectors.toList());
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        owned.addAll(numbers(places));
        int generation = consumer.groupMetadata().generationId();
        note("assigned " + (generation < 0 ? "-" : generation) + " " + shown(numbers(places)));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        if (!automatic()) commit(numbers(places));
        forget(places);
        note("revoked " + shown(numbers(places)));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        forget(places);
        note("lost " + shown(numbers(places)));
    }

    private void forget(Collection<TopicPartition> places) {
        numbers(places).forEach(each -> {
            owned.remove(each);
            pending.remove(each);
        });
    }

    private Map<Integer, Long> takePending(Collection<Integer> wanted) {
        Map<Integer, Long> taken = new TreeMap<>(pending);
        taken.keySet().retainAll(new HashSet<>(wanted));
        pending.keySet().removeAll(taken.keySet());
        return taken;
    }

    private void commit(Collection<Integer> wanted) {
        Map<Integer, Long> offsets = takePending(wanted);
        if (offsets.isEmpty()) return;
        int mine = ++token;
        note("asked " + mine + " " + shown(offsets));
        Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
        offsets.forEach((each, at) ->
                places.put(new TopicPartition(job.get("topic"), each), new OffsetAndMetadata(at)));
        try {
            consumer.commitSync(places, Duration.ofSeconds(20));
            note("acked " + mine + " " + shown(offsets));
        } catch (CommitFailedException | RebalanceInProgressException | FencedInstanceIdException error) {
            note("refused " + mine + " " + oneLine(error));
            putBack(offsets);
        } catch (KafkaException error) {
            note("unknown " + mine + " " + oneLine(error));
            putBack(offsets);
        }
    }

    /** What is still here, and not read further, is committed later. */
    private void putBack(Map<Integer, Long> offsets) {
        offsets.forEach((each, at) -> {
            if (owned.contains(each)) pending.merge(each, at, Math::max);
        });
    }

    private static String oneLine(Throwable error) {
        return error.toString().replaceAll("\\s+", " ");
    }

    private void read(ConsumerRecords<byte[], byte[]> records) {
        for (TopicPartition place : records.partitions()) {
            if (!owned.contains(place.partition())) continue;
            List<ConsumerRecord<byte[], byte[]>> run = new ArrayList<>(records.records(place));
            for (ConsumerRecord<byte[], byte[]> record : run) {
                long number = Long.parseLong(new String(record.value()));
                if (number != record.offset() * partitions + place.partition()) {
                    note("fault partition " + place.partition() + " offset " + record.offset()
                            + " holds " + number);
                    break;
                }
            }
            long end = run.get(run.size() - 1).offset() + 1;
            note("read " + place.partition() + " " + run.get(0).offset() + " " + end);
            pending.put(place.partition(), end);
        }
    }

    private void run() throws IOException {
        consumer.subscribe(List.of(job.get("topic")), this);
        long every = Long.parseLong(job.get("commit_every_ms"));
        long due = System.currentTimeMillis() + every;
        while (!stopped) {
            read(consumer.poll(POLL));
            if (System.currentTimeMillis() >= due) {
                due = System.currentTimeMillis() + every;
                if (!automatic()) commit(List.copyOf(pending.keySet()));
            }
        }
        consumer.close();
        note("left");
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> job = new HashMap<>();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            job.put(argument.substring(0, at), argument.substring(at + 1));
        }
        GroupMember running = new GroupMember(job);
        Thread listener = new Thread(() -> {
            try {
                while (System.in.read() >= 0) continue;
            } catch (IOException error) {
                running.note("fault " + oneLine(error));
            }
            running.stopped = true;
        });
        listener.setDaemon(true);
        listener.start();
        try {
            running.run();
        } catch (Exception error) {
            running.note("fault ended by " + oneLine(error));
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }
}
