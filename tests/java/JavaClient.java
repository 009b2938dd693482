import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * An application that knows MirrorMaker 2's client library and nothing of ours. Reads a command a line, writes tab-separated
 * lines, and "done" behind each command's last one.
 *
 * <p>Arguments: settings of MirrorClient on the target, key=value.
 */
public class JavaClient {
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (String one : arguments) settings.put(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "clusters" -> clusters(settings, words[1]);
                case "offsets" -> offsets(settings, words[1], words[2]);
                case "consume" -> consume(words[1], words[2], words[3], Integer.parseInt(words[4]));
                case "fail over" -> failOver(settings, words[1], words[2]);
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println("done");
        }
    }

    /** What the library finds out about an upstream cluster. */
    private static void clusters(Map<String, Object> settings, String alias) throws Exception {
        System.out.println("hops\t" + RemoteClusterUtils.replicationHops(settings, alias));
        say("upstream", RemoteClusterUtils.upstreamClusters(settings));
        say("heartbeats", RemoteClusterUtils.heartbeatTopics(settings));
        say("checkpoints", RemoteClusterUtils.checkpointTopics(settings));
        try (MirrorClient client = new MirrorClient(settings)) {
            say("remote", client.remoteTopics());
            say("remote of it", client.remoteTopics(alias));
        }
    }

    private static void say(String what, Iterable<String> names) {
        TreeSet<String> sorted = new TreeSet<>();
        names.forEach(sorted::add);
        System.out.println(what + "\t" + String.join("\t", sorted));
    }

    /** Where a group goes on. */
    private static void offsets(Map<String, Object> settings, String alias, String group) throws Exception {
        for (Map.Entry<TopicPartition, OffsetAndMetadata> one :
                RemoteClusterUtils.translateOffsets(settings, alias, group, PATIENCE).entrySet())
            System.out.println(one.getKey().topic() + "\t" + one.getKey().partition() + "\t" + one.getValue().offset()
                    + "\t" + one.getValue().metadata());
    }

    /** Reads at least so many records of a topic as a group's only member, and commits. */
    private static void consume(String bootstrap, String group, String topic, int atLeast) {
        Map<String, Object> own = Map.of("bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "max.poll.records", "37", "isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(java.util.List.of(topic));
            for (int read = 0; read < atLeast; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    show(record);
                    read++;
                }
                consumer.commitSync();
            }
        }
    }

    /** Goes on as a group on the target, at the offsets that the library translates, to the logs' ends. */
    private static void failOver(Map<String, Object> settings, String alias, String group) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> places =
                RemoteClusterUtils.translateOffsets(settings, alias, group, PATIENCE);
        Map<String, Object> own = Map.of("bootstrap.servers", settings.get("bootstrap.servers"), "group.id", group + "-there",
                "auto.offset.reset", "none", "enable.auto.commit", "false", "isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(own, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(places.keySet());
            places.forEach(consumer::seek);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places.keySet());
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue()))
                consumer.poll(Duration.ofMillis(200)).forEach(JavaClient::show);
        }
    }

    private static void show(ConsumerRecord<byte[], byte[]> record) {
        System.out.println(record.partition() + "\t" + record.offset() + "\t" + hex(record.value()));
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "" : java.util.HexFormat.of().formatHex(bytes);
    }
}
