import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Kafka's own client as a member of a group; says what tests/integration/groups/member.py describes. */
public final class Member implements ConsumerRebalanceListener {
    private static final int PARTITIONS_OF_A_TOPIC = 1000;

    private final TreeSet<Integer> owned = new TreeSet<>();

    public static void main(String[] words) {
        AtomicBoolean ended = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // nothing is said but the end
                }
            } catch (java.io.IOException gone) {
                // as good as an end
            }
            ended.set(true);
        });
        input.setDaemon(true);
        input.start();
        new Member().run(words, ended);
    }

    private void run(String[] words, AtomicBoolean ended) {
        Properties settings = new Properties();
        boolean cooperative = words[0].endsWith("cooperative");
        settings.put("bootstrap.servers", words[1]);
        settings.put("group.id", words[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("session.timeout.ms", System.getenv("MEMBER_SESSION_MS"));
        settings.put("heartbeat.interval.ms", System.getenv("MEMBER_HEARTBEAT_MS"));
        settings.put("max.poll.interval.ms", System.getenv("MEMBER_REBALANCE_MS"));
        settings.put("metadata.max.age.ms", "2000");
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer."
                + (cooperative ? "CooperativeStickyAssignor" : "RangeAssignor"));
        if (words.length > 4) {
            settings.put("group.instance.id", words[4]);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (words[3].startsWith("^")) {
                consumer.subscribe(Pattern.compile(words[3]), this);
            } else {
                consumer.subscribe(List.of(words[3]), this);
            }
            long nextCommit = 0;
            while (!ended.get()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    say("read " + place(record.topic(), record.partition()) + " " + record.offset());
                }
                if (System.currentTimeMillis() >= nextCommit && !owned.isEmpty()) {
                    nextCommit = System.currentTimeMillis() + 250;
                    commit(consumer);
                }
            }
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            Map<TopicPartition, OffsetAndMetadata> places = new HashMap<>();
            for (TopicPartition one : consumer.assignment()) {
                places.put(one, new OffsetAndMetadata(consumer.position(one, Duration.ofSeconds(1))));
            }
            consumer.commitSync(places, Duration.ofSeconds(5));
            places.forEach((one, offset) ->
                    say("committed " + place(one.topic(), one.partition()) + " " + offset.offset()));
        } catch (KafkaException refused) {
            // another generation, or a coordinator on its way
        }
    }

    private static int place(String topic, int partition) {
        return PARTITIONS_OF_A_TOPIC * Integer.parseInt(topic.substring(topic.lastIndexOf('-') + 1)) + partition;
    }

    private static synchronized void say(String words) {
        System.out.println(System.currentTimeMillis() + " " + words);
    }

    private void tell() {
        String list = owned.stream().map(String::valueOf).collect(Collectors.joining(","));
        say("owns " + (list.isEmpty() ? "-" : list));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(one -> owned.add(place(one.topic(), one.partition())));
        tell();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        partitions.forEach(one -> owned.remove(place(one.topic(), one.partition())));
        tell();
    }
}
