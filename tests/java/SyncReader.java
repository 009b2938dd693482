package org.apache.kafka.connect.mirror; // where the store is, which is open to nobody else

import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.common.TopicPartition;

/**
 * Translates by MirrorMaker 2's own store of offset-syncs. Arguments: settings of the checkpoint connector as key=value, and
 * positions as topic/partition/offset. A line for each position: the offset on the target, or -1.
 */
public class SyncReader {
    public static void main(String[] arguments) {
        Map<String, String> settings = new HashMap<>();
        for (String one : arguments)
            if (one.contains("=")) settings.put(one.substring(0, one.indexOf('=')), one.substring(one.indexOf('=') + 1));
        try (OffsetSyncStore store = new OffsetSyncStore(new MirrorCheckpointConfig(settings))) {
            store.start(true);
            for (String one : arguments) {
                if (one.contains("=")) continue;
                String[] parts = one.split("/");
                TopicPartition partition = new TopicPartition(parts[0], Integer.parseInt(parts[1]));
                OptionalLong found = store.translateDownstream("a group", partition, Long.parseLong(parts[2]));
                System.out.println("offset\t" + found.orElse(Long.MIN_VALUE));
            }
        }
        System.exit(0);
    }
}
