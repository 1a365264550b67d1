import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.common.header.Headers;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/**
 * Writes into each record's headers who made it, of what, and when, so that it can be seen from outside who had a task at what time:
 *
 * <pre>
 *   by      the instance
 *   thread  the stream thread
 *   task    like 0_3
 *   tenure  process.n: one for each time that the task was given to this process, new when it comes back
 *   from    topic:partition:offset of the record it was made of
 *   at      microseconds since 1970, by the clock of the machine that all of a test's processes share
 * </pre>
 */
final class Tag<V> implements FixedKeyProcessor<String, V, V> {
    private static final String PROCESS = UUID.randomUUID().toString().substring(0, 8);
    private static final AtomicLong TENURES = new AtomicLong();

    private final byte[] by;
    private final AtomicLong seen;
    private final AtomicLong slow;
    private FixedKeyProcessorContext<String, V> context;
    private byte[] task;
    private byte[] tenure;

    Tag(Map<String, String> args, AtomicLong seen, AtomicLong slow) {
        by = bytes(Topologies.need(args, "name"));
        this.seen = seen;
        this.slow = slow;
    }

    private static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    /** Streams calls it whenever the task becomes this thread's, also when it was here before. */
    @Override
    public void init(FixedKeyProcessorContext<String, V> c) {
        context = c;
        task = bytes(c.taskId().toString());
        tenure = bytes(PROCESS + "." + TENURES.incrementAndGet());
    }

    @Override
    public void process(FixedKeyRecord<String, V> r) {
        RecordMetadata m = context.recordMetadata().orElseThrow();
        Instant now = Instant.now();
        Headers h = r.headers();
        for (String mine : new String[] {"by", "thread", "task", "tenure", "from", "at"}) h.remove(mine); // of a subtopology before
        h.add("by", by).add("thread", bytes(Thread.currentThread().getName())).add("task", task).add("tenure", tenure)
            .add("from", bytes(m.topic() + ":" + m.partition() + ":" + m.offset()))
            .add("at", bytes(Long.toString(now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000)));
        seen.incrementAndGet();
        context.forward(r);
        if (slow.get() > 0) sleep(slow.get());
    }

    private static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
