import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** One member of a group that tells what it does, as member.py does; it ends with its input. */
public class ConsumerMember {
    private static final TreeSet<Integer> OWNED = new TreeSet<>();
    private static volatile boolean ended = false;

    private static synchronized void tell(String words) {
        System.out.println(System.currentTimeMillis() + " " + words);
        System.out.flush();
    }

    private static void tellOwned() {
        String numbers = OWNED.stream().map(String::valueOf).collect(Collectors.joining(","));
        tell("owns " + (numbers.isEmpty() ? "-" : numbers));
    }

    public static void main(String[] words) throws Exception {
        String protocol = words[0];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        settings.put("group.id", words[2]);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("max.poll.interval.ms", "20000");
        settings.put("metadata.max.age.ms", "2000");
        if (protocol.equals("classic")) {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "1000");
        }
        if (words.length > 4) {
            settings.put("group.instance.id", words[4]);
        }
        Thread reader = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException ignored) {
            }
            ended = true;
        });
        reader.setDaemon(true);
        reader.start();
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                partitions.forEach(place -> OWNED.add(place.partition()));
                tellOwned();
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                partitions.forEach(place -> OWNED.remove(place.partition()));
                tellOwned();
            }
        };
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(words[3]), listener);
            long nextCommit = 0;
            while (!ended) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    tell("read " + record.partition() + " " + record.offset());
                }
                if (System.currentTimeMillis() >= nextCommit && !OWNED.isEmpty()) {
                    nextCommit = System.currentTimeMillis() + 250;
                    commit(consumer);
                }
            }
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer) {
        try {
            Map<TopicPartition, OffsetAndMetadata> places = consumer.assignment().stream()
                .collect(Collectors.toMap(p -> p, p -> new OffsetAndMetadata(consumer.position(p))));
            consumer.commitSync(places, Duration.ofSeconds(5));
            places.forEach((p, offset) -> tell("committed " + p.partition() + " " + offset.offset()));
        } catch (KafkaException error) {
            System.err.println(error);
        }
    }
}
