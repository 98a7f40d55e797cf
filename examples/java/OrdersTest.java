/*
 * Kafka's Java client through the loss of a broker, over the command line and the control port.
 * Needs kafka-clients and what that needs.
 *
 *     java -cp "kafka-clients.jar:slf4j-api.jar:..." OrdersTest.java
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class OrdersTest {
    /** A cluster for one test; it ends with this JVM, however that ends. */
    static final class Kafkalike implements AutoCloseable {
        private final Process process;
        private final String facts;
        private final HttpClient http = HttpClient.newHttpClient();

        Kafkalike(int brokers) throws Exception {
            long pid = ProcessHandle.current().pid();
            process = new ProcessBuilder("kafkalike", "up", "--brokers", "" + brokers, "--memory",
                    "--port", "0", "--control-port", "0", "--output", "json", "--until-exit-of", "" + pid)
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start();
            facts = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
            if (facts == null) throw new IllegalStateException("the cluster did not start");
        }

        String fact(String name) {
            Matcher found = Pattern.compile("\"" + name + "\": \"([^\"]*)\"").matcher(facts);
            if (!found.find()) throw new IllegalStateException(facts);
            return found.group(1);
        }

        /** The result of a verb, as JSON text. */
        String call(String verb, String arguments) throws Exception {
            HttpRequest request = HttpRequest.newBuilder(URI.create(fact("control") + "/" + verb))
                    .POST(HttpRequest.BodyPublishers.ofString(arguments)).build();
            HttpResponse<String> answer = http.send(request, HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) throw new IllegalStateException(verb + ": " + answer.body());
            return answer.body().replaceAll("^\\{\"result\": (.*)\\}\\s*$", "$1");
        }

        @Override
        public void close() throws Exception {
            process.destroy();
            process.waitFor();
        }
    }

    public static void main(String[] args) throws Exception {
        try (Kafkalike cluster = new Kafkalike(3)) {
            cluster.call("prepare_groups", "{}");
            cluster.call("create_topic", "{\"topic\": \"orders\"}");
            Properties settings = new Properties();
            settings.put("bootstrap.servers", cluster.fact("bootstrap_servers"));
            settings.put("acks", "all");
            settings.put("group.id", "test");
            settings.put("auto.offset.reset", "earliest");
            for (String kind : List.of("key", "value")) {
                settings.put(kind + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
                settings.put(kind + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
            }
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                producer.send(new ProducerRecord<>("orders", "before")).get();
                String leader = cluster.call("leader", "{\"topic\": \"orders\"}");
                cluster.call("kill", "{\"broker\": " + leader + ", \"at_once\": true}");
                cluster.call("wait_leader", "{\"topic\": \"orders\", \"other_than\": " + leader + "}");
                producer.send(new ProducerRecord<>("orders", "after")).get();
            }
            List<String> values = new ArrayList<>();
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(List.of("orders"));
                for (int tries = 0; tries < 100 && values.size() < 2; tries++)
                    consumer.poll(Duration.ofMillis(300)).forEach(record -> values.add(record.value()));
            }
            if (!values.equals(List.of("before", "after"))) throw new AssertionError(values);
            System.out.println("ok " + values);
        }
    }
}
