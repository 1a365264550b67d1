import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * One instance of a Kafka Streams application, told by arguments of the form key=value what to be:
 *
 * <pre>
 *   bootstrap   host:port of the cluster                     id        application.id, that is, the group
 *   name        this instance, for the "by" header           in, out   topics, which must exist
 *   topology    stateless: every record from in to out, unchanged but for two headers:
 *                 by    the instance that wrote it
 *                 from  partition:offset of the record it was made of
 *               count: in, re-keyed by value (a repartition topic), counted (a store and its changelog), to out
 *               join: in, re-keyed by value (a repartition topic), joined with in2 within five minutes (two window stores
 *                 and their changelogs), both values to out
 *               copy2: as stateless, in two subtopologies (in to out, in2 to out2)
 *   threads     1            guarantee   at_least_once       protocol  streams
 *   state       state directory                              commit    commit interval in ms
 *   close       default, leave or remain: what to do with the membership at the end
 *   config.KEY  any further setting
 * </pre>
 *
 * It runs until SIGTERM. Standard output has one event per line, after the milliseconds since the start:
 *
 * <pre>
 *   1500 STATE RUNNING        2000 TASKS 0_0 0_1        2500 COUNT 42        9000 UNCAUGHT ...        9100 CLOSED true
 * </pre>
 */
public final class StreamsApp {
    private static final long START = System.nanoTime();
    private static final AtomicLong SEEN = new AtomicLong();

    private final Map<String, String> args = new TreeMap<>();

    private StreamsApp(String[] words) {
        for (String word : words) {
            int at = word.indexOf('=');
            if (at < 1) throw new IllegalArgumentException("not key=value: " + word);
            args.put(word.substring(0, at), word.substring(at + 1));
        }
    }

    public static void main(String[] words) throws Exception {
        System.exit(new StreamsApp(words).run());
    }

    private static void say(String event) {
        synchronized (System.out) {
            System.out.println((System.nanoTime() - START) / 1_000_000 + " " + event);
            System.out.flush();
        }
    }

    private String need(String key) {
        String v = args.get(key);
        if (v == null) throw new IllegalArgumentException("missing argument " + key + "=");
        return v;
    }

    private int run() throws InterruptedException {
        KafkaStreams streams = new KafkaStreams(topology(), config());
        CountDownLatch over = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            say("STATE " + now);
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) over.countDown();
        });
        streams.setUncaughtExceptionHandler(e -> {
            for (Throwable t = e; t != null; t = t.getCause()) say("UNCAUGHT " + t);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            boolean inTime = close(streams);
            say("COUNT " + SEEN.get());
            say("CLOSED " + inTime);
        }));
        streams.start();
        report(streams, over);
        return streams.state() == KafkaStreams.State.ERROR ? 1 : 0;
    }

    /** Prints the tasks and the number of records whenever they have changed, until the application is over. */
    private static void report(KafkaStreams streams, CountDownLatch over) throws InterruptedException {
        String tasks = null;
        long count = -1;
        while (!over.await(100, TimeUnit.MILLISECONDS)) {
            TreeSet<String> active = new TreeSet<>();
            streams.metadataForLocalThreads().forEach(t -> t.activeTasks().forEach(task -> active.add(task.taskId().toString())));
            String now = String.join(" ", active);
            if (!now.equals(tasks)) say("TASKS " + now);
            tasks = now;
            if (SEEN.get() != count) say("COUNT " + (count = SEEN.get()));
        }
    }

    private boolean close(KafkaStreams streams) {
        Duration patience = Duration.ofSeconds(20);
        CloseOptions.GroupMembershipOperation membership = switch (args.getOrDefault("close", "default")) {
            case "leave" -> CloseOptions.GroupMembershipOperation.LEAVE_GROUP;
            case "remain" -> CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP;
            default -> null;
        };
        return membership == null ? streams.close(patience)
            : streams.close(CloseOptions.groupMembershipOperation(membership).withTimeout(patience));
    }

    private Properties config() {
        Properties p = new Properties();
        p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, need("bootstrap"));
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, need("id"));
        p.put(StreamsConfig.CLIENT_ID_CONFIG, need("name"));
        p.put(StreamsConfig.STATE_DIR_CONFIG, need("state"));
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

    private Topology topology() {
        StreamsBuilder b = new StreamsBuilder();
        String kind = args.getOrDefault("topology", "stateless");
        switch (kind) {
            case "stateless" -> copy(b, need("in"), need("out"));
            case "copy2" -> {
                copy(b, need("in"), need("out"));
                copy(b, need("in2"), need("out2"));
            }
            case "filter" -> source(b, need("in"))
                .peek((k, v) -> SEEN.incrementAndGet())
                .filter((k, v) -> v != null)
                .mapValues(v -> v)
                .to(need("out"), Produced.with(Serdes.String(), Serdes.String()));
            case "count" -> source(b, need("in"))
                .peek((k, v) -> SEEN.incrementAndGet())
                .selectKey((k, v) -> v)
                .groupByKey(Grouped.with("by-value", Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
                .toStream()
                .to(need("out"), Produced.with(Serdes.String(), Serdes.Long()));
            case "join" -> source(b, need("in"))
                .peek((k, v) -> SEEN.incrementAndGet())
                .selectKey((k, v) -> v)
                .join(source(b, need("in2")).peek((k, v) -> SEEN.incrementAndGet()), (l, r) -> l + "+" + r,
                    JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5)),
                    StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName("pair").withStoreName("pairs"))
                .to(need("out"), Produced.with(Serdes.String(), Serdes.String()));
            default -> throw new IllegalArgumentException("unknown topology " + kind + ", there are " + List.of("stateless", "copy2", "filter", "count", "join"));
        }
        return b.build();
    }

    private static KStream<String, String> source(StreamsBuilder b, String topic) {
        return b.stream(topic, Consumed.with(Serdes.String(), Serdes.String()));
    }

    private void copy(StreamsBuilder b, String in, String out) {
        String name = need("name");
        source(b, in).processValues(() -> new Tag(name)).to(out, Produced.with(Serdes.String(), Serdes.String()));
    }

    /** Writes into each record's headers who made it, and of what. */
    private static final class Tag implements FixedKeyProcessor<String, String, String> {
        private final byte[] name;
        private FixedKeyProcessorContext<String, String> context;

        Tag(String name) {
            this.name = name.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public void init(FixedKeyProcessorContext<String, String> c) {
            context = c;
        }

        @Override
        public void process(FixedKeyRecord<String, String> r) {
            RecordMetadata m = context.recordMetadata().orElseThrow();
            r.headers().add("by", name);
            r.headers().add("from", (m.partition() + ":" + m.offset()).getBytes(StandardCharsets.UTF_8));
            SEEN.incrementAndGet();
            context.forward(r);
        }
    }
}
