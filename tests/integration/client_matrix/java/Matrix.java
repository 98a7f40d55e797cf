import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own client as a program of the matrix; contract.py says what it understands. */
public final class Matrix {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final Map<String, Object> common;
    private final Admin admin;

    private Matrix(String bootstrap) {
        common = Map.of("bootstrap.servers", bootstrap);
        admin = Admin.create(common);
    }

    public static void main(String[] arguments) throws Exception {
        Matrix matrix = new Matrix(arguments[0]);
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println("ready\tjava\t" + version() + "\tnone,gzip,snappy,lz4,zstd");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                List<String> fields = new ArrayList<>(List.of("ok"));
                fields.addAll(matrix.answer(line.split("\t")));
                answer = String.join("\t", fields);
            } catch (Exception error) {
                answer = "error\t" + error.toString().replace('\t', ' ').replace('\n', ' ');
            }
            out.println(answer);
        }
        matrix.admin.close();
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream in = Matrix.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }

    private List<String> answer(String[] words) throws Exception {
        switch (words[0]) {
            case "create":
                return create(words);
            case "list":
                return new ArrayList<>(admin.listTopics().names().get());
            case "describe":
                return describe(words[1]);
            case "setting": {
                ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, words[1]);
                return List.of(admin.describeConfigs(Set.of(topic)).all().get().get(topic).get(words[2]).value());
            }
            case "produce":
                return List.of(Integer.toString(produce(words[1], words[2], Path.of(words[3]))));
            case "consume":
                return List.of(Integer.toString(consume(words[1], words[2], Path.of(words[3]))));
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private List<String> create(String[] words) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int i = 4; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        Optional<Integer> partitions = Optional.of(Integer.valueOf(words[2]));
        NewTopic topic = new NewTopic(words[1], partitions, Optional.of(Short.valueOf(words[3])));
        admin.createTopics(Set.of(topic.configs(settings))).all().get();
        return List.of();
    }

    private List<String> describe(String topic) throws Exception {
        List<String> views = new ArrayList<>();
        for (TopicPartitionInfo it : admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions()) {
            views.add(it.partition() + ":" + it.leader().id() + ":" + ids(it.replicas()) + ":" + ids(it.isr()));
        }
        return views;
    }

    private static String ids(List<Node> nodes) {
        return nodes.stream().map(node -> Integer.toString(node.id())).collect(Collectors.joining(","));
    }

    private int produce(String topic, String codec, Path path) throws Exception {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("compression.type", codec);
        settings.put("linger.ms", "5");
        AtomicReference<Exception> failure = new AtomicReference<>();
        int count = 0;
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(path), 1 << 16));
                KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long left = Files.size(path); left > 0; count++) {
                int partition = in.readInt();
                in.readLong();
                long timestamp = in.readLong();
                byte[] key = read(in);
                byte[] value = read(in);
                ProducerRecord<byte[], byte[]> record =
                        new ProducerRecord<>(topic, partition, timestamp < 0 ? null : timestamp, key, value);
                int headers = in.readInt();
                left -= 20 + size(key) + size(value) + 4;
                for (int i = 0; i < headers; i++) {
                    byte[] name = read(in);
                    byte[] content = read(in);
                    left -= size(name) + size(content);
                    record.headers().add(new String(name, StandardCharsets.UTF_8), content);
                }
                producer.send(record, (metadata, error) -> {
                    if (error != null) {
                        failure.set(error);
                    }
                });
            }
            producer.flush();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        return count;
    }

    private int consume(String topic, String since, Path path) throws IOException {
        int count = 0;
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path), 1 << 16));
                KafkaConsumer<byte[], byte[]> consumer =
                        new KafkaConsumer<>(common, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> all = consumer.partitionsFor(topic).stream()
                    .map(it -> new TopicPartition(topic, it.partition())).collect(Collectors.toList());
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            Map<TopicPartition, Long> starts = new HashMap<>(consumer.beginningOffsets(all));
            if (!since.equals("-")) {
                Map<TopicPartition, Long> asked = new HashMap<>();
                all.forEach(it -> asked.put(it, Long.valueOf(since)));
                consumer.offsetsForTimes(asked).forEach(
                        (it, found) -> starts.put(it, found == null ? ends.get(it) : (Long) found.offset()));
            }
            Set<TopicPartition> open = new HashSet<>(all);
            open.removeIf(it -> starts.get(it) >= ends.get(it));
            consumer.assign(open);
            open.forEach(it -> consumer.seek(it, starts.get(it)));
            while (!open.isEmpty()) {
                var records = consumer.poll(LIMIT);
                if (records.isEmpty()) {
                    throw new IOException("nothing came, not done: " + open);
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (record.offset() < ends.get(new TopicPartition(topic, record.partition()))) {
                        write(out, record);
                        count++;
                    }
                }
                open.removeIf(it -> consumer.position(it) >= ends.get(it));
            }
        }
        return count;
    }

    private static void write(DataOutputStream out, ConsumerRecord<byte[], byte[]> record) throws IOException {
        out.writeInt(record.partition());
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        write(out, record.key());
        write(out, record.value());
        Header[] headers = record.headers().toArray();
        out.writeInt(headers.length);
        for (Header header : headers) {
            write(out, header.key().getBytes(StandardCharsets.UTF_8));
            write(out, header.value());
        }
    }

    private static void write(DataOutputStream out, byte[] data) throws IOException {
        out.writeInt(data == null ? -1 : data.length);
        if (data != null) {
            out.write(data);
        }
    }

    private static byte[] read(DataInputStream in) throws IOException {
        int size = in.readInt();
        if (size < 0) {
            return null;
        }
        byte[] data = new byte[size];
        in.readFully(data);
        return data;
    }

    private static long size(byte[] data) {
        return 4 + (data == null ? 0 : data.length);
    }
}
