import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;
import java.util.stream.Collectors;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * One instance of a Kafka Streams application, told by words of the form key=value what to be:
 *
 * <pre>
 *   bootstrap   host:port of the cluster                     id        application.id, that is, the group
 *   name        this instance                                topology  see Topologies; so are in, out, in2, out2, parts
 *   threads     1            guarantee   at_least_once       protocol  streams
 *   state       state directory                              commit    commit interval in ms
 *   slow        0: how many ms each record takes             close     default, leave or remain: the membership at the end
 *   uncaught    end or replace: what an exception that nothing catches does to the thread, and with it to the instance
 *   config.KEY  any further setting
 * </pre>
 *
 * Its events, each a line of its own whenever something has changed:
 *
 * <pre>
 *   STATE RUNNING                     TASKS 0_0 0_1 (active)          STANDBYS 0_2          COUNT 42 (records processed)
 *   RESTORED counts 1 250 (store, partition, records read from its changelog)
 *   ENDPOINTS host:port=in-0,in-1|in-2 …  (with application.server: what each instance has, active|standby)
 *   HOST store key host:port, and VALUE store key value (answers to get)
 *   LAG 0 (records, answer to lag)    SLOW 7000 (answer to slow)
 *   UNCAUGHT exception                CLOSED true
 * </pre>
 */
final class AppInstance {
    private static final Duration CLOSE_PATIENCE = Duration.ofSeconds(20);

    private final Map<String, String> args;
    private final BiConsumer<String, String> say;
    private final AtomicLong seen = new AtomicLong();
    private final AtomicLong slow;
    private final CountDownLatch over = new CountDownLatch(1);
    private final Map<String, String> said = new TreeMap<>();
    private final KafkaStreams streams;
    private boolean closed; // guarded by this

    AppInstance(List<String> words, BiConsumer<String, String> say) {
        args = parsed(words);
        this.say = say;
        slow = new AtomicLong(Long.parseLong(args.getOrDefault("slow", "0")));
        streams = new KafkaStreams(new Topologies(args, seen, slow).build(), config());
    }

    private static Map<String, String> parsed(List<String> words) {
        Map<String, String> args = new TreeMap<>();
        for (String word : words) {
            int at = word.indexOf('=');
            if (at < 1) throw new IllegalArgumentException("not key=value: " + word);
            args.put(word.substring(0, at), word.substring(at + 1));
        }
        return args;
    }

    /** What events and commands call an instance with these arguments. */
    static String key(List<String> words) {
        Map<String, String> args = parsed(words);
        return Topologies.need(args, "id") + "/" + Topologies.need(args, "name");
    }

    String key() {
        return Topologies.need(args, "id") + "/" + Topologies.need(args, "name");
    }

    private void say(String event) {
        say.accept(key(), event);
    }

    /** Says an event unless it is what was said of that kind before. */
    private void tell(String kind, String what) {
        if (!what.equals(said.put(kind, what))) say(kind + " " + what);
    }

    void slow(long millis) {
        slow.set(millis);
        say("SLOW " + millis);
    }

    /** Runs until it is closed or has failed. Returns whether it ended well. */
    boolean run() {
        streams.setStateListener((now, before) -> {
            say("STATE " + now);
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) over.countDown();
        });
        streams.setUncaughtExceptionHandler(e -> {
            for (Throwable t = e; t != null; t = t.getCause()) say("UNCAUGHT " + t);
            return args.getOrDefault("uncaught", "end").equals("replace")
                ? StreamThreadExceptionResponse.REPLACE_THREAD : StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setGlobalStateRestoreListener(new Restored());
        streams.start();
        try {
            while (!over.await(100, TimeUnit.MILLISECONDS)) report();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return streams.state() != KafkaStreams.State.ERROR;
    }

    private void report() {
        TreeSet<String> active = new TreeSet<>();
        TreeSet<String> standby = new TreeSet<>();
        for (ThreadMetadata t : streams.metadataForLocalThreads()) {
            for (TaskMetadata task : t.activeTasks()) active.add(task.taskId().toString());
            for (TaskMetadata task : t.standbyTasks()) standby.add(task.taskId().toString());
        }
        tell("TASKS", String.join(" ", active));
        tell("STANDBYS", String.join(" ", standby));
        tell("COUNT", Long.toString(seen.get()));
        if (args.containsKey("config." + StreamsConfig.APPLICATION_SERVER_CONFIG)) tell("ENDPOINTS", endpoints());
    }

    private String endpoints() {
        try {
            return streams.metadataForAllStreamsClients().stream()
                .map(m -> m.host() + ":" + m.port() + "=" + partitions(m.topicPartitions()) + "|" + partitions(m.standbyTopicPartitions()))
                .sorted().collect(Collectors.joining(" "));
        } catch (IllegalStateException notRunning) {
            return "";
        }
    }

    private static String partitions(Collection<TopicPartition> all) {
        return all.stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(","));
    }

    /** Says where a key of a store is, and what its value is if the store is here. */
    void get(String store, String key) {
        KeyQueryMetadata where = streams.queryMetadataForKey(store, key, Serdes.String().serializer());
        say("HOST " + store + " " + key + " " + where.activeHost().host() + ":" + where.activeHost().port());
        try {
            ReadOnlyKeyValueStore<String, Object> local = streams.store(
                StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.<String, Object>keyValueStore()).withPartition(where.partition()));
            say("VALUE " + store + " " + key + " " + local.get(key));
        } catch (InvalidStateStoreException elsewhere) {
            say("VALUE " + store + " " + key + " (not here)");
        }
    }

    /** Says how many records its stores, active and standby, lack of their changelogs. */
    void lag() {
        long sum = 0;
        for (Map<Integer, LagInfo> partitions : streams.allLocalStorePartitionLags().values())
            for (LagInfo lag : partitions.values()) sum += lag.offsetLag();
        say("LAG " + sum);
    }

    /** Closes it; a second call waits for the first. */
    synchronized void close() {
        if (closed) return;
        closed = true;
        CloseOptions.GroupMembershipOperation membership = switch (args.getOrDefault("close", "default")) {
            case "leave" -> CloseOptions.GroupMembershipOperation.LEAVE_GROUP;
            case "remain" -> CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP;
            default -> null;
        };
        boolean inTime = membership == null ? streams.close(CLOSE_PATIENCE)
            : streams.close(CloseOptions.groupMembershipOperation(membership).withTimeout(CLOSE_PATIENCE));
        say("COUNT " + seen.get());
        say("CLOSED " + inTime);
        over.countDown();
    }

    private Properties config() {
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, Topologies.need(args, "bootstrap"));
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, Topologies.need(args, "id"));
        p.put(StreamsConfig.CLIENT_ID_CONFIG, Topologies.need(args, "name"));
        p.put(StreamsConfig.STATE_DIR_CONFIG, Topologies.need(args, "state"));
        p.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, args.getOrDefault("protocol", "streams"));
        p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args.getOrDefault("guarantee", "at_least_once"));
        p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args.getOrDefault("threads", "1"));
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args.getOrDefault("commit", "500"));
        p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0"); // every update of a count is written
        p.put("auto.offset.reset", "earliest");
        args.forEach((k, v) -> {
            if (k.startsWith("config.")) p.put(k.substring("config.".length()), v);
        });
        return p;
    }

    private final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition p, String store, long from, long to) { }

        @Override
        public void onBatchRestored(TopicPartition p, String store, long end, long n) { }

        @Override
        public void onRestoreEnd(TopicPartition p, String store, long total) {
            say("RESTORED " + store + " " + p.partition() + " " + total);
        }
    }
}
