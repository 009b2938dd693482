import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.internals.Topic;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/**
 * The rules of a managed cluster for the topics of clients, from the file that the broker's setting {@code target.rules}
 * names.
 *
 * It is read for each request, so that one cluster can be several, one after the other:
 *
 * <ul>
 *   <li>{@code replicas=3}: the one replication factor that there is.
 *   <li>{@code fixed.KEY=VALUE}: a setting's one value. {@code least.KEY=N}, {@code most.KEY=N}: its bounds.
 *   <li>{@code never.KEY=FROM>TO; ...}: changes of a topic that is there. The broker is asked for what it has: a policy is
 *       told the new value alone, and also of requests that only validate, so that it can't remember.
 * </ul>
 */
public class TargetRules {
    private static volatile Path file;
    private static volatile String broker;

    private static void read(Map<String, ?> settings) {
        file = Path.of(settings.get("target.rules").toString());
        broker = settings.get("listeners").toString().split("PLAINTEXT://", 2)[1].split(",")[0];
    }

    private static Properties rules() {
        Properties found = new Properties();
        try (Reader reader = Files.newBufferedReader(file)) {
            found.load(reader);
        } catch (IOException e) {
            throw new PolicyViolationException("no rules: " + e);
        }
        return found;
    }

    private static void check(Properties rules, String topic, Map<String, String> settings) {
        for (Map.Entry<String, String> one : settings.entrySet()) {
            String key = one.getKey();
            String value = one.getValue();
            if (value == null) {
                continue;
            }
            String fixed = rules.getProperty("fixed." + key, value);
            if (!fixed.equals(value)) {
                throw new PolicyViolationException("Config property '" + key + "' is " + fixed + " and can't be changed");
            }
            String least = rules.getProperty("least." + key, value);
            if (!least.equals(value) && Long.parseLong(value) < Long.parseLong(least)) {
                throw new PolicyViolationException(bound(key, value, "lower than the minimum", least));
            }
            String most = rules.getProperty("most." + key, value);
            if (!most.equals(value) && Long.parseLong(value) > Long.parseLong(most)) {
                throw new PolicyViolationException(bound(key, value, "higher than the maximum", most));
            }
            String never = rules.getProperty("never." + key);
            if (never != null) {
                checkChange(never, topic, key, value);
            }
        }
    }

    private static String bound(String key, String value, String how, String limit) {
        return "Config property '" + key + "' with value '" + value + "' is " + how + " allowed value of " + limit + ".";
    }

    private static void checkChange(String never, String topic, String key, String value) {
        String before = now(topic, key);
        for (String change : never.split(";")) {
            String[] ends = change.split(">");
            if (before != null && sorted(before).equals(sorted(ends[0])) && sorted(value).equals(sorted(ends[1]))) {
                throw new PolicyViolationException("Altering " + key + " from '" + before + "' to '" + value + "' is not supported.");
            }
        }
    }

    private static List<String> sorted(String list) {
        return Arrays.stream(list.split(",")).map(String::trim).sorted().toList();
    }

    private static String now(String topic, String key) {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, (Object) broker))) {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof UnknownTopicOrPartitionException) {
                return null; // it is just being created
            }
            throw new PolicyViolationException("what is there? " + e);
        } catch (InterruptedException e) {
            throw new PolicyViolationException("what is there? " + e);
        }
    }

    public static class OnCreate implements CreateTopicPolicy {
        @Override
        public void validate(RequestMetadata wanted) {
            if (Topic.isInternal(wanted.topic())) {
                return; // the brokers' own
            }
            Properties rules = rules();
            String replicas = rules.getProperty("replicas");
            if (replicas != null && wanted.replicationFactor() != null && !replicas.equals(wanted.replicationFactor().toString())) {
                throw new PolicyViolationException("Topic replication factor must be " + replicas);
            }
            check(rules, wanted.topic(), wanted.configs());
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
            if (wanted.resource().type() == ConfigResource.Type.TOPIC && !Topic.isInternal(wanted.resource().name())) {
                check(rules(), wanted.resource().name(), wanted.configs());
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
