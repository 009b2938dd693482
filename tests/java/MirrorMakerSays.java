import java.io.FileInputStream;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.connector.policy.ConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.mirror.Checkpoint;
import org.apache.kafka.connect.mirror.CheckpointStore;
import org.apache.kafka.connect.mirror.ConfigPropertyFilter;
import org.apache.kafka.connect.mirror.DefaultReplicationPolicy;
import org.apache.kafka.connect.mirror.MirrorCheckpointConfig;
import org.apache.kafka.connect.mirror.MirrorCheckpointConnector;
import org.apache.kafka.connect.mirror.MirrorCheckpointTask;
import org.apache.kafka.connect.mirror.MirrorMakerConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;
import org.apache.kafka.connect.mirror.ReplicationPolicy;
import org.apache.kafka.connect.mirror.SourceAndTarget;
import org.apache.kafka.connect.mirror.TopicFilter;
import org.apache.kafka.connect.runtime.ConnectorConfig;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;
import org.apache.kafka.connect.runtime.isolation.Plugins;

/**
 * Asks MirrorMaker 2's own classes what needs no cluster. A line for each answer: the question, a key, the value, with tabs in
 * between.
 */
public final class MirrorMakerSays {
    private static final PrintStream OUT = new PrintStream(System.out, true);
    private static final SourceAndTarget FLOW = new SourceAndTarget("A", "B");
    private static final TopicPartition ORDERS = new TopicPartition("A.orders", 0);

    /** A filter of one's own. */
    public static class OnlyMine implements TopicFilter {
        @Override
        public boolean shouldReplicateTopic(String topic) {
            return topic.startsWith("mine");
        }
    }

    /** A policy of one's own. */
    public static class Backwards extends DefaultReplicationPolicy {
        @Override
        public String formatRemoteTopic(String alias, String topic) {
            return topic + "-of-" + alias;
        }
    }

    public static void main(String[] args) throws Exception {
        exactlyOnce();
        producers();
        dealt();
        ownCode();
        setBack();
        cycles();
        nearby();
        checkpoints();
        for (String file : args) comments(file);
        System.exit(0);
    }

    private static MirrorMakerConfig file(String... more) {
        Map<String, String> given = new HashMap<>(Map.of("clusters", "A, B", "A.bootstrap.servers", "a:1",
                "B.bootstrap.servers", "b:1", "A->B.enabled", "true", "A->B.topics", "orders"));
        // Or each file has every class of the class path looked at.
        for (String key : List.of("plugin.discovery", "B.plugin.discovery")) given.put(key, "service_load");
        for (int i = 0; i < more.length; i += 2) given.put(more[i], more[i + 1]);
        return new MirrorMakerConfig(given);
    }

    private static MirrorSourceConfig source(String... more) {
        return new MirrorSourceConfig(file(more).connectorBaseConfig(FLOW, MirrorSourceConnector.class));
    }

    /** What the setting may be, and whether a consumer without more is fit for it. */
    private static void exactlyOnce() throws Exception {
        Method config = DistributedConfig.class.getDeclaredMethod(
                "config", Class.forName("org.apache.kafka.connect.runtime.distributed.Crypto"));
        config.setAccessible(true);
        Field system = config.getParameterTypes()[0].getDeclaredField("SYSTEM");
        system.setAccessible(true);
        ConfigDef.ConfigKey key =
                ((ConfigDef) config.invoke(null, system.get(null))).configKeys().get("exactly.once.source.support");
        say("exactly once", "default", key.defaultValue);
        say("exactly once", "values", key.validator);
        for (String level : List.of("", "read_committed")) {
            Map<String, String> one = level.isEmpty() ? Map.of() : Map.of("source.consumer.isolation.level", level);
            say("exactly once", level.isEmpty() ? "as it is" : level, new MirrorSourceConnector().exactlyOnceSupport(one));
        }
    }

    /** With what a task's producer is made: Connect's own values, and what the file says. */
    private static void producers() throws Exception {
        Method made = Worker.class.getDeclaredMethod("baseProducerConfigs", String.class, String.class, WorkerConfig.class,
                ConnectorConfig.class, Class.class, ConnectorClientConfigOverridePolicy.class, String.class);
        made.setAccessible(true);
        for (String[] more : new String[][] {{}, {"B.producer.delivery.timeout.ms", "5000"}}) {
            MirrorMakerConfig config = file(more);
            Plugins plugins = new Plugins(config.workerConfig(FLOW));
            Map<?, ?> found = (Map<?, ?>) made.invoke(null, "c", "c", new DistributedConfig(config.workerConfig(FLOW)),
                    new SourceConnectorConfig(plugins, config.connectorBaseConfig(FLOW, MirrorSourceConnector.class), false),
                    MirrorSourceConnector.class, new AllConnectorClientConfigOverridePolicy(), "id");
            for (String key : List.of("max.in.flight.requests.per.connection", "enable.idempotence", "acks",
                    "delivery.timeout.ms", "max.block.ms"))
                say(more.length == 0 ? "producer" : "producer of a file", key, found.get(key));
        }
    }

    /** Which task gets which partitions. */
    private static void dealt() throws Exception {
        List<TopicPartition> known = new ArrayList<>();
        for (String topic : List.of("hot", "small"))
            for (int partition = 0; partition < 4; partition++) known.add(new TopicPartition(topic, partition));
        Constructor<MirrorSourceConnector> make =
                MirrorSourceConnector.class.getDeclaredConstructor(List.class, MirrorSourceConfig.class);
        make.setAccessible(true);
        List<Map<String, String>> tasks = make.newInstance(known, source()).taskConfigs(3);
        for (int task = 0; task < tasks.size(); task++)
            say("dealt", String.valueOf(task), tasks.get(task).get("task.assigned.partitions"));
    }

    private static void ownCode() throws Exception {
        MirrorSourceConfig config = source("A->B.topic.filter.class", OnlyMine.class.getName(),
                "replication.policy.class", Backwards.class.getName());
        TopicFilter filter = (TopicFilter) call(MirrorSourceConfig.class, config, "topicFilter");
        for (String topic : List.of("mine-1", "orders")) say("own filter", topic, filter.shouldReplicateTopic(topic));
        ReplicationPolicy policy =
                (ReplicationPolicy) call(MirrorSourceConfig.class.getSuperclass(), config, "replicationPolicy");
        say("own policy", "orders", policy.formatRemoteTopic("A", "orders"));
    }

    /**
     * Where a step of groups sets one whose position on the target was looked up by the step before. Whatever the group has done
     * in between, it is not looked at.
     */
    private static void setBack() throws Exception {
        for (String[] seen : new String[][] {{"50", "60"}, {"70", "60"}, {"", "60"}}) {
            Map<String, Map<TopicPartition, OffsetAndMetadata>> idle = new HashMap<>();
            if (!seen[0].isEmpty())
                idle.put("readers", new HashMap<>(Map.of(ORDERS, new OffsetAndMetadata(Long.parseLong(seen[0])))));
            Checkpoint checkpoint = new Checkpoint("readers", ORDERS, 60, Long.parseLong(seen[1]), "");
            Constructor<CheckpointStore> store = CheckpointStore.class.getDeclaredConstructor(Map.class);
            store.setAccessible(true);
            CheckpointStore checkpoints =
                    store.newInstance(new HashMap<>(Map.of("readers", new HashMap<>(Map.of(ORDERS, checkpoint)))));
            Constructor<?> make = null;
            for (Constructor<?> one : MirrorCheckpointTask.class.getDeclaredConstructors())
                if (one.getParameterCount() == 7) make = one;
            make.setAccessible(true);
            Object task = make.newInstance(
                    "A", "B", new DefaultReplicationPolicy(), null, Set.of("readers"), idle, checkpoints);
            Map<?, ?> set = (Map<?, ?>) call(MirrorCheckpointTask.class, task, "syncGroupOffset");
            Map<?, ?> ofGroup = (Map<?, ?>) set.get("readers");
            OffsetAndMetadata at = ofGroup == null ? null : (OffsetAndMetadata) ofGroup.get(ORDERS);
            say("group", "seen at " + seen[0], at == null ? "left alone" : at.offset());
        }
    }

    /** Which topics it takes for copies that came from the target. */
    private static void cycles() throws Exception {
        Constructor<MirrorSourceConnector> make = MirrorSourceConnector.class.getDeclaredConstructor(
                SourceAndTarget.class, ReplicationPolicy.class, TopicFilter.class, ConfigPropertyFilter.class);
        make.setAccessible(true);
        TopicFilter all = topic -> true;
        MirrorSourceConnector connector = make.newInstance(FLOW, new DefaultReplicationPolicy(), all, null);
        Method asked = MirrorSourceConnector.class.getDeclaredMethod("shouldReplicateTopic", String.class);
        asked.setAccessible(true);
        for (String topic : List.of("orders", "B.orders", "C.orders")) say("mirrored", topic, asked.invoke(connector, topic));
    }

    /** Where its consumer is, for brokers that send readers to a replica nearby. */
    private static void nearby() throws Exception {
        Method asked = MirrorSourceConfig.class.getSuperclass().getDeclaredMethod("sourceConsumerConfig", String.class);
        asked.setAccessible(true);
        Map<?, ?> found = (Map<?, ?>) asked.invoke(source("A.consumer.client.rack", "eu-1"), "role");
        say("consumer", "client.rack", found.get("client.rack"));
    }

    /** How many tasks make checkpoints, of which positions are made, of a group that is known. */
    private static void checkpoints() throws Exception {
        Constructor<MirrorCheckpointConnector> make =
                MirrorCheckpointConnector.class.getDeclaredConstructor(Set.class, MirrorCheckpointConfig.class);
        make.setAccessible(true);
        for (String seconds : List.of("60", "-1")) {
            MirrorCheckpointConfig config = new MirrorCheckpointConfig(file("emit.checkpoints.interval.seconds", seconds)
                    .connectorBaseConfig(FLOW, MirrorCheckpointConnector.class));
            say("checkpoints", seconds, make.newInstance(Set.of("readers"), config).taskConfigs(2).size());
        }
    }

    /** What it takes for the names of clusters in a file that has comments behind values. */
    private static void comments(String file) throws Exception {
        Properties read = new Properties();
        try (FileInputStream in = new FileInputStream(file)) {
            read.load(in);
        }
        Map<String, String> given = new HashMap<>(Map.of("plugin.discovery", "service_load"));
        read.forEach((key, value) -> given.put((String) key, (String) value));
        for (String one : new TreeSet<>(new MirrorMakerConfig(given).clusters())) say("clusters", one, "");
    }

    private static Object call(Class<?> type, Object on, String name) throws Exception {
        Method method = type.getDeclaredMethod(name);
        method.setAccessible(true);
        return method.invoke(on);
    }

    private static void say(String question, String key, Object value) {
        OUT.println(String.join("\t", question, key, String.valueOf(value)));
    }
}
