import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Prints every key of the clients and of MirrorMaker 2: class, key, default and, of a whole number, the least and the most
 * that it may be, with tabs in between.
 */
public final class KeyLists {
    private static final String MIRROR = "org.apache.kafka.connect.mirror.";

    public static void main(String[] args) throws Exception {
        print("consumer", ConsumerConfig.configDef());
        print("producer", ProducerConfig.configDef());
        print("admin", AdminClientConfig.configDef());
        print("source", field(MIRROR + "MirrorSourceConfig", "CONNECTOR_CONFIG_DEF"));
        print("checkpoint", field(MIRROR + "MirrorCheckpointConfig", "CONNECTOR_CONFIG_DEF"));
        print("heartbeat", field(MIRROR + "MirrorHeartbeatConfig", "CONNECTOR_CONFIG_DEF"));
        print("client", field(MIRROR + "MirrorClientConfig", "CONFIG_DEF"));
        print("topic filter", field(MIRROR + "DefaultTopicFilter$TopicFilterConfig", "DEF"));
        print("group filter", field(MIRROR + "DefaultGroupFilter$GroupFilterConfig", "DEF"));
        print("property filter", field(MIRROR + "DefaultConfigPropertyFilter$ConfigPropertyFilterConfig", "DEF"));
        print("driver", call(MIRROR + "MirrorMakerConfig", "config"));
        print("worker", worker());
        print("connector", call("org.apache.kafka.connect.runtime.SourceConnectorConfig", "configDef"));
    }

    private static ConfigDef worker() throws Exception {
        String package_ = "org.apache.kafka.connect.runtime.distributed.";
        Class<?> crypto = Class.forName(package_ + "Crypto");
        Field system = crypto.getDeclaredField("SYSTEM");
        system.setAccessible(true);
        Method config = Class.forName(package_ + "DistributedConfig").getDeclaredMethod("config", crypto);
        config.setAccessible(true);
        return (ConfigDef) config.invoke(null, system.get(null));
    }

    private static ConfigDef field(String type, String name) throws Exception {
        Field field = Class.forName(type).getDeclaredField(name);
        field.setAccessible(true);
        return (ConfigDef) field.get(null);
    }

    private static ConfigDef call(String type, String name) throws Exception {
        Method method = Class.forName(type).getDeclaredMethod(name);
        method.setAccessible(true);
        return (ConfigDef) method.invoke(null);
    }

    private static void print(String of, ConfigDef definition) {
        for (Map.Entry<String, ConfigDef.ConfigKey> each : new TreeMap<>(definition.configKeys()).entrySet()) {
            Object value = each.getValue().defaultValue;
            String shown = value == ConfigDef.NO_DEFAULT_VALUE ? "(required)"
                : value instanceof Class ? ((Class<?>) value).getName() : String.valueOf(value);
            System.out.println(of + "\t" + each.getKey() + "\t" + shown + range(each.getValue()));
        }
    }

    private static String range(ConfigDef.ConfigKey key) {
        if (key.type != ConfigDef.Type.INT && key.type != ConfigDef.Type.LONG) {
            return "";
        }
        // Of a validator that is none of Range, or of none, the type's own.
        String text = key.validator instanceof ConfigDef.Range ? key.validator.toString() : "[...]";
        return "\t" + key.type + "\t" + text;
    }
}
