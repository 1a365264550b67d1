import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescription;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescriptionPlugin;
import org.apache.kafka.coordinator.group.api.streams.StreamsTopologyDescriptionPermanentFailureException;
import org.apache.kafka.coordinator.group.api.streams.StreamsTopologyDescriptionTransientFailureException;

/**
 * The twin of plugin/faulty: a topology description plugin whose behaviour the group id says. Script, behaviours and texts are described
 * there (plugin/faulty/doc.go), and both sides must stay alike to the letter: tests compare what a Kafka broker with this plugin answers
 * with what streamkeeper answers with the other one. Every call prints one line, "plugin-call OPERATION EPOCH BEHAVIOUR GROUP".
 */
public final class FaultyPlugin implements StreamsGroupTopologyDescriptionPlugin {
    private static final long LATE_MS = 300;
    private static final long SLOW_MS = 9_000;
    private static final int LARGE = 40_000;

    private record Kept(int epoch, StreamsGroupTopologyDescription description) { }

    private record Clause(String behaviour, int count) { }

    private final Map<String, Kept> kept = new ConcurrentHashMap<>();
    private final Map<String, List<Runnable>> held = new ConcurrentHashMap<>(); // by NAME/OPERATION
    private final Map<String, AtomicInteger> calls = new ConcurrentHashMap<>();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(work -> {
        Thread t = new Thread(work, "faulty-plugin");
        t.setDaemon(true);
        return t;
    });

    @Override
    public CompletableFuture<Void> setTopology(String group, int epoch, StreamsGroupTopologyDescription description) {
        return act("set", group, epoch, () -> {
            kept.put(group, new Kept(epoch, description));
            for (Clause c : clauses("free", group)) {
                List<Runnable> waiting = held.remove(c.behaviour);
                if (waiting != null) waiting.forEach(Runnable::run);
            }
            return null;
        });
    }

    @Override
    public CompletableFuture<StreamsGroupTopologyDescription> getTopology(String group, int epoch) {
        return act("get", group, epoch, () -> {
            Kept k = kept.get(group);
            return k == null || k.epoch != epoch ? null : k.description;
        });
    }

    @Override
    public CompletableFuture<Void> deleteTopology(String group) {
        return act("delete", group, -1, () -> {
            kept.remove(group);
            return null;
        });
    }

    @Override
    public void configure(Map<String, ?> configs) {
        System.out.println("plugin-configured " + configs.containsKey("node.id"));
    }

    @Override
    public void close() {
        timer.shutdownNow();
        System.out.println("plugin-closed");
    }

    private interface Work<T> {
        T run();
    }

    private <T> CompletableFuture<T> act(String operation, String group, int epoch, Work<T> work) {
        int n = calls.computeIfAbsent(operation + " " + group, k -> new AtomicInteger()).incrementAndGet();
        String behaviour = behaviour(operation, group, n);
        System.out.println("plugin-call " + operation + " " + epoch + " " + behaviour + " " + group);
        String text = operation + " fails, call " + n;
        CompletableFuture<T> f = new CompletableFuture<>();
        switch (behaviour) {
            case "ok" -> f.complete(work.run());
            case "null" -> f.complete(null);
            case "twice" -> {
                f.complete(work.run());
                f.completeExceptionally(new IllegalStateException(text));
            }
            case "late" -> timer.schedule(() -> f.complete(work.run()), LATE_MS, TimeUnit.MILLISECONDS);
            case "held" -> held.computeIfAbsent(group.split(";")[0] + "/" + operation, k -> new CopyOnWriteArrayList<>()).add(() -> f.complete(work.run()));
            case "slow" -> timer.schedule(() -> f.complete(work.run()), SLOW_MS, TimeUnit.MILLISECONDS);
            case "latefail" -> timer.schedule(() -> f.completeExceptionally(new IllegalStateException(text)), LATE_MS, TimeUnit.MILLISECONDS);
            case "transient" -> f.completeExceptionally(new StreamsTopologyDescriptionTransientFailureException(text));
            case "permanent" -> f.completeExceptionally(new StreamsTopologyDescriptionPermanentFailureException(text));
            case "wrapped" -> f.completeExceptionally(
                new CompletionException("outside", new StreamsTopologyDescriptionPermanentFailureException(text)));
            case "error" -> f.completeExceptionally(new IllegalStateException(text));
            case "bare" -> f.completeExceptionally(new CompletionException("outside", null));
            case "mute" -> f.completeExceptionally(new IllegalStateException((String) null));
            case "large" -> f.completeExceptionally(new IllegalStateException("x".repeat(LARGE)));
            case "throw" -> throw new IllegalStateException(text);
            case "nil" -> {
                return null;
            }
            case "hang" -> { }
            default -> throw new IllegalStateException("no such behaviour: " + behaviour);
        }
        return f;
    }

    /** What the n-th call of the operation does: the clauses of an operation follow each other, each for its number of calls. */
    private static String behaviour(String operation, String group, int n) {
        for (Clause c : clauses(operation, group)) {
            if (c.count == 0 || n <= c.count) return c.behaviour;
            n -= c.count;
        }
        return "ok";
    }

    private static List<Clause> clauses(String operation, String group) {
        List<Clause> found = new ArrayList<>();
        String[] parts = group.split(";");
        for (int i = 1; i < parts.length; i++) {
            if (!parts[i].startsWith(operation + ":")) continue;
            String[] how = parts[i].substring(operation.length() + 1).split("\\*");
            found.add(new Clause(how[0], how.length > 1 ? Integer.parseInt(how[1]) : 0));
        }
        return found;
    }
}
