import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The applications, by name. All read strings from the topic in, and write to the topic out, which must exist; what they write has the
 * headers of Tag, which say who wrote it.
 *
 * <pre>
 *   stateless  in to out, unchanged
 *   copy2      the same in two subtopologies, in to out and in2 to out2
 *   filter     in to out without nulls, in the DSL's own nodes alone (no Tag), as its topology description was captured
 *   count      in, re-keyed by value (a repartition topic), counted (a store and its changelog), to out; no Tag, as captured
 *   counted    the same with Tag
 *   join       in, re-keyed by value (a repartition topic), joined with in2 within five minutes (two window stores and their
 *              changelogs), both values to out
 *   kept       in, its last value for each key kept (a store and its changelog), to out, unchanged: each record goes in once and comes out
 *              at least once whatever happens, which is not so of counts
 *   kept2      the same behind a repartition topic: two subtopologies
 *   global     in, joined by value with the global table of in2, both values to out
 *   wide       in, re-keyed by value and dealt out by it to parts-1 repartition topics, each counted in a store with a changelog of its
 *              own, all to out: so many subtopologies
 * </pre>
 */
final class Topologies {
    private static final Duration WINDOW = Duration.ofMinutes(5);

    private final Map<String, String> args;
    private final AtomicLong seen;
    private final AtomicLong slow;
    private final StreamsBuilder b = new StreamsBuilder();

    Topologies(Map<String, String> args, AtomicLong seen, AtomicLong slow) {
        this.args = args;
        this.seen = seen;
        this.slow = slow;
    }

    static String need(Map<String, String> args, String key) {
        String v = args.get(key);
        if (v == null) throw new IllegalArgumentException("missing argument " + key + "=");
        return v;
    }

    private String need(String key) {
        return need(args, key);
    }

    Topology build() {
        String kind = args.getOrDefault("topology", "stateless");
        switch (kind) {
            case "stateless" -> copy("in", "out");
            case "copy2" -> {
                copy("in", "out");
                copy("in2", "out2");
            }
            case "filter" -> source("in").filter((k, v) -> v != null).mapValues(v -> v).to(need("out"), strings());
            case "count" -> counts().to(need("out"), Produced.with(Serdes.String(), Serdes.Long()));
            case "counted" -> tagged(counts(), Serdes.Long());
            case "kept" -> kept(source("in"));
            case "kept2" -> kept(source("in").repartition(Repartitioned.with(Serdes.String(), Serdes.String()).withName("dealt")));
            case "join" -> tagged(source("in").selectKey((k, v) -> v)
                .join(source("in2"), (l, r) -> l + "+" + r, JoinWindows.ofTimeDifferenceWithNoGrace(WINDOW),
                    StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName("pair").withStoreName("pairs")),
                Serdes.String());
            case "global" -> {
                GlobalKTable<String, String> table = b.globalTable(need("in2"), Consumed.with(Serdes.String(), Serdes.String()));
                tagged(source("in").leftJoin(table, (k, v) -> v, (v, named) -> v + "+" + named), Serdes.String());
            }
            case "wide" -> wide(Integer.parseInt(need("parts")) - 1);
            default -> throw new IllegalArgumentException("unknown topology " + kind + ", there are "
                + List.of("stateless", "copy2", "filter", "count", "counted", "kept", "kept2", "join", "global", "wide"));
        }
        return b.build();
    }

    private void copy(String in, String out) {
        // processValues keeps the key, and with it the partition: a task writes to one partition of the output alone.
        stream(in).processValues(() -> new Tag<>(args, seen, slow)).to(need(out), strings());
    }

    private KStream<String, Long> counts() {
        return source("in").selectKey((k, v) -> v)
            .groupByKey(Grouped.with("by-value", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream();
    }

    private void kept(KStream<String, String> stream) {
        tagged(stream.toTable(Named.as("last"), Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("last")
            .withKeySerde(Serdes.String()).withValueSerde(Serdes.String())).toStream(), Serdes.String());
    }

    private void wide(int counters) {
        Map<Integer, KStream<String, String>> dealt = new HashMap<>();
        var split = source("in").selectKey((k, v) -> v).split(Named.as("deal-"));
        for (int i = 0; i < counters; i++) {
            int mine = i;
            split = split.branch((k, v) -> Math.floorMod(k.hashCode(), counters) == mine, Branched.withConsumer(s -> dealt.put(mine, s)));
        }
        split.noDefaultBranch();
        dealt.forEach((i, words) -> tagged(words
            .groupByKey(Grouped.with("words" + i, Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts" + i)).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream(), Serdes.Long()));
    }

    private KStream<String, String> stream(String topic) {
        return b.stream(need(topic), Consumed.with(Serdes.String(), Serdes.String()));
    }

    private KStream<String, String> source(String topic) {
        return stream(topic).peek((k, v) -> seen.incrementAndGet());
    }

    private <V> void tagged(KStream<String, V> stream, Serde<V> serde) {
        stream.processValues(() -> new Tag<V>(args, new AtomicLong(), slow)).to(need("out"), Produced.with(Serdes.String(), serde));
    }

    private static Produced<String, String> strings() {
        return Produced.with(Serdes.String(), Serdes.String());
    }
}
