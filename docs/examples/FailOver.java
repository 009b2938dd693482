import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/** Goes on on the target where a consumer group stood on the source. Arguments: target's servers, source alias, group. */
public class FailOver {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> target = Map.of("bootstrap.servers", arguments[0]);
        Map<TopicPartition, OffsetAndMetadata> places =
                RemoteClusterUtils.translateOffsets(target, arguments[1], arguments[2], Duration.ofSeconds(30));
        if (places.isEmpty()) throw new IllegalStateException("no checkpoint of " + arguments[2]);
        places.forEach((partition, place) -> System.out.println(partition + " at " + place.offset()));

        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "group.id", arguments[2],
                "enable.auto.commit", "false", "auto.offset.reset", "none", "isolation.level", "read_committed");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(places.keySet());
            consumer.commitSync(places);  // from here on the group itself stands there
            consumer.poll(Duration.ofSeconds(5)).forEach(record -> System.out.println(
                    record.topic() + "-" + record.partition() + " " + record.offset() + ": " + record.value()));
        }
    }
}
