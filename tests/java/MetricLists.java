import java.lang.reflect.Field;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.common.MetricNameTemplate;
import org.apache.kafka.connect.runtime.ConnectMetricsRegistry;

/** Prints the metrics of Kafka Connect's workers and tasks, one a line: group, tab, name. */
public class MetricLists {
    public static void main(String[] arguments) throws Exception {
        ConnectMetricsRegistry registry = new ConnectMetricsRegistry();
        TreeSet<String> found = new TreeSet<>();
        for (Field field : ConnectMetricsRegistry.class.getDeclaredFields()) {
            field.setAccessible(true);
            Object value = field.get(registry);
            if (value instanceof MetricNameTemplate one) found.add(one.group() + "\t" + one.name());
            if (value instanceof Map<?, ?> several)
                for (Object one : several.keySet())
                    if (one instanceof MetricNameTemplate template) found.add(template.group() + "\t" + template.name());
        }
        System.out.println(String.join("\n", found));
    }
}
