import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Real Kafka Streams applications for tests. Called with arguments of the form key=value it is one instance of an application (see
 * AppInstance for the keys), and runs until SIGTERM. Called with the word "host" alone it runs as many instances as standard input
 * asks for, of one application or of several, which saves starting a JVM for each; it ends with its input. The commands of a host have
 * their words separated by tabs:
 *
 * <pre>
 *   start  key=value …      an instance; its id and name are what other commands call it by, as id/name
 *   stop   id/name          closes it
 *   slow   id/name  ms      from now on each of its records takes so long
 *   get    id/name  store  key    where a key of a store is, and its value if it is here
 *   lag    id/name          how far its stores, standbys included, are behind their changelogs
 * </pre>
 *
 * Standard output has one event per line, after the milliseconds since the start and the instance:
 *
 * <pre>
 *   1500 orders/a STATE RUNNING        2000 orders/a TASKS 0_0 0_1        2500 orders/a COUNT 42
 * </pre>
 */
public final class StreamsApp {
    private static final long START = System.nanoTime();
    private static final Map<String, AppInstance> INSTANCES = new ConcurrentHashMap<>();

    private StreamsApp() { }

    public static void main(String[] words) throws Exception {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> INSTANCES.values().parallelStream().forEach(AppInstance::close)));
        if (List.of(words).equals(List.of("host"))) {
            host();
            System.exit(0);
        }
        AppInstance only = new AppInstance(List.of(words), StreamsApp::say);
        INSTANCES.put(only.key(), only);
        System.exit(only.run() ? 0 : 1);
    }

    private static void host() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> words = Arrays.asList(line.split("\t"));
            List<String> rest = words.subList(1, words.size());
            // A command must not hold up the next one: closing an instance can take its time.
            Thread command = new Thread(() -> obey(words.get(0), rest), "command " + words.get(0));
            if (words.get(0).equals("start")) obey("start", rest); // so that what comes next finds the instance
            else command.start();
        }
    }

    private static void obey(String command, List<String> words) {
        try {
            if (command.equals("start")) {
                AppInstance started = new AppInstance(words, StreamsApp::say);
                INSTANCES.put(started.key(), started);
                new Thread(started::run, "host of " + started.key()).start();
                return;
            }
            AppInstance instance = INSTANCES.get(words.get(0));
            if (instance == null) throw new IllegalArgumentException("there is no instance " + words.get(0));
            switch (command) {
                case "stop" -> {
                    instance.close();
                    INSTANCES.remove(words.get(0), instance);
                }
                case "slow" -> instance.slow(Long.parseLong(words.get(1)));
                case "lag" -> instance.lag();
                case "get" -> instance.get(words.get(1), words.get(2));
                default -> throw new IllegalArgumentException("there is no command " + command);
            }
        } catch (RuntimeException e) {
            say(command.equals("start") ? AppInstance.key(words) : words.get(0), "REFUSED " + command + " " + e);
        }
    }

    /** Prints one event of an instance. */
    static void say(String instance, String event) {
        synchronized (System.out) {
            System.out.println((System.nanoTime() - START) / 1_000_000 + " " + instance + " " + event);
            System.out.flush();
        }
    }
}
