import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends a record for each key, as any application does. Arguments: bootstrap servers, a topic, and keys as hexadecimal digits.
 * A line for each key: the partition that the producer has chosen.
 */
public class Partitions {
    public static void main(String[] arguments) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(Map.of("bootstrap.servers", arguments[0]), bytes, bytes)) {
            for (int i = 2; i < arguments.length; i++) {
                byte[] key = HexFormat.of().parseHex(arguments[i]);
                Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(arguments[1], key, key));
                System.out.println("key " + arguments[i] + "\t" + sent.get().partition());
            }
        }
    }
}
