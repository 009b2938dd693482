import java.io.FileInputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.connect.mirror.MirrorMakerConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;
import org.apache.kafka.connect.mirror.ReplicationPolicy;
import org.apache.kafka.connect.mirror.SourceAndTarget;

/**
 * Prints what MirrorMaker 2 makes of its file: of each flow whose connectors are enabled the keys that they get, and those
 * of its consumer and both admin clients; where its workers keep their state, and what its own topics are called. A line
 * for each: flow, who gets it, key, value, with character 1 in between.
 */
public final class MirrorMakerFile {
    private static final PrintStream OUT = new PrintStream(System.out, true);
    private static final List<String> WORKERS_OWN =
            List.of("offset.storage.topic", "config.storage.topic", "status.storage.topic", "group.id");

    public static void main(String[] args) throws Exception {
        Properties read = new Properties();
        try (FileInputStream file = new FileInputStream(args[0])) {
            read.load(file);
        }
        Map<String, String> given = new HashMap<>();
        read.forEach((key, value) -> given.put((String) key, (String) value));
        MirrorMakerConfig config = new MirrorMakerConfig(given);
        Map<String, SourceAndTarget> flows = new TreeMap<>();
        config.clusterPairs().forEach(pair -> flows.put(pair.toString(), pair));
        for (Map.Entry<String, SourceAndTarget> flow : flows.entrySet()) {
            Map<String, String> base = config.connectorBaseConfig(flow.getValue(), MirrorSourceConnector.class);
            if (!Boolean.parseBoolean(base.get("enabled"))) {
                continue;
            }
            print(flow.getKey(), "connectors", base);
            MirrorSourceConfig source = new MirrorSourceConfig(base);
            for (String client : new String[] {"sourceConsumer", "sourceAdmin", "targetAdmin"}) {
                Method method = method(client + "Config", String.class);
                print(flow.getKey(), client, (Map<?, ?>) method.invoke(source, "role"));
            }
            Map<String, String> workers = config.workerConfig(flow.getValue());
            workers.keySet().retainAll(WORKERS_OWN);
            print(flow.getKey(), "workers", workers);
            ReplicationPolicy policy = (ReplicationPolicy) method("replicationPolicy").invoke(source);
            String checkpoints = policy.checkpointsTopic(flow.getValue().source());
            String syncs = policy.offsetSyncsTopic(flow.getValue().target());
            print(flow.getKey(), "topics", Map.of("checkpoints", checkpoints, "offset-syncs", syncs));
        }
    }

    private static Method method(String name, Class<?>... parameters) throws Exception {
        Class<?> type = Class.forName("org.apache.kafka.connect.mirror.MirrorConnectorConfig");
        Method method = type.getDeclaredMethod(name, parameters);
        method.setAccessible(true);
        return method;
    }

    private static void print(String flow, String who, Map<?, ?> values) {
        Map<String, Object> sorted = new TreeMap<>();
        values.forEach((key, value) -> sorted.put((String) key, value));
        sorted.forEach((key, value) -> OUT.println(String.join("\u0001", flow, who, key, String.valueOf(value))));
    }
}
