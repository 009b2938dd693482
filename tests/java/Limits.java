import java.util.Map;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/**
 * A cluster's rules for topics: at most 6 partitions, no scratch names, nothing kept for longer than a week.
 *
 * With {@code limits.exempt} among the broker's settings, topics that begin so may be kept for ever.
 */
public class Limits {
    private static final long WEEK_MS = 604800000L;

    private static volatile String exempt = "";

    private static void read(Map<String, ?> settings) {
        Object value = settings.get("limits.exempt");
        exempt = value == null ? "" : value.toString();
    }

    private static void checkRetention(String topic, Map<String, String> configs) {
        String value = configs == null ? null : configs.get("retention.ms");
        boolean free = !exempt.isEmpty() && topic.startsWith(exempt);
        if (!free && value != null && (Long.parseLong(value) < 0 || Long.parseLong(value) > WEEK_MS)) {
            throw new PolicyViolationException("retention.ms of " + topic + " is " + value + ", at most " + WEEK_MS);
        }
    }

    public static class OnCreate implements CreateTopicPolicy {
        @Override
        public void validate(RequestMetadata wanted) {
            if (wanted.topic().startsWith("tmp-")) {
                throw new PolicyViolationException("no topic " + wanted.topic() + ": tmp- is for scratch");
            }
            if (wanted.numPartitions() != null && wanted.numPartitions() > 6) {
                throw new PolicyViolationException("at most 6 partitions, not " + wanted.numPartitions());
            }
            checkRetention(wanted.topic(), wanted.configs());
        }

        @Override
        public void configure(Map<String, ?> configs) {
            read(configs);
        }

        @Override
        public void close() {}
    }

    public static class OnAlter implements AlterConfigPolicy {
        @Override
        public void validate(RequestMetadata wanted) {
            if (wanted.resource().type() == ConfigResource.Type.TOPIC) {
                checkRetention(wanted.resource().name(), wanted.configs());
            }
        }

        @Override
        public void configure(Map<String, ?> configs) {
            read(configs);
        }

        @Override
        public void close() {}
    }
}
