import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.kafka.coordinator.group.api.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;

/**
 * How long Kafka's sticky assignor takes for one large group: a line "scenario median-nanoseconds" each for a group that has nothing yet
 * (cold), one that has what it was given (steady), and the same with one member more (join).
 *
 * <p>Arguments: members, processes, subtopologies, partitions, statefulOf (every how many-th subtopology has a store; with 1
 * members also report the offsets of all they have), and for how many milliseconds each scenario warms up and is then measured.
 */
public final class AssignorBench {
    public static void main(String[] args) throws Exception {
        int[] a = Arrays.stream(args).mapToInt(Integer::parseInt).toArray();
        int members = a[0], processes = a[1], subtopologies = a[2], partitions = a[3], statefulOf = a[4], millis = a[5];
        Map<String, Boolean> stateful = new HashMap<>();
        List<String> ids = new ArrayList<>();
        for (int i = 0; i < subtopologies; i++) {
            ids.add(Integer.toString(i));
            stateful.put(Integer.toString(i), i % statefulOf == 0);
        }
        Collections.sort(ids);
        TopologyDescriber topology = new TopologyDescriber() {
            public List<String> subtopologies() { return ids; }
            public int maxNumInputPartitions(String id) { return partitions; }
            public boolean isStateful(String id) { return stateful.get(id); }
        };
        Map<String, MemberMetadataAndStateImpl> group = new HashMap<>();
        for (int i = 0; i < members; i++) {
            group.put(String.format("member-%04d", i), member(String.format("process-%03d", i % processes), null, false));
        }
        measure("cold", group, topology, millis);
        GroupAssignment found = new StickyTaskAssignor().assign(spec(group), topology);
        group.replaceAll((id, m) -> member(m.processId(), found.members().get(id), statefulOf == 1));
        measure("steady", group, topology, millis);
        group.put(String.format("member-%04d", members), member(String.format("process-%03d", processes), null, false));
        measure("join", group, topology, millis);
    }

    static GroupSpecImpl spec(Map<String, MemberMetadataAndStateImpl> group) {
        return new GroupSpecImpl(group, new AssignmentConfigsImpl(1, List.of()));
    }

    static MemberMetadataAndStateImpl member(String process, MemberAssignment has, boolean reports) {
        Map<String, Set<Integer>> active = has == null ? Map.of() : has.activeTasks(), standby = has == null ? Map.of() : has.standbyTasks();
        Map<String, Map<Integer, Long>> offsets = new HashMap<>();
        if (reports) {
            for (Map<String, Set<Integer>> tasks : List.of(active, standby)) {
                tasks.forEach((id, list) -> list.forEach(p -> offsets.computeIfAbsent(id, k -> new HashMap<>()).put(p, (long) p)));
            }
        }
        return new MemberMetadataAndStateImpl(Optional.empty(), Optional.empty(), process, Map.of(), active, standby, Map.of(), offsets, Map.of());
    }

    static void measure(String scenario, Map<String, MemberMetadataAndStateImpl> group, TopologyDescriber topology, int millis) throws Exception {
        run(group, topology, millis); // the compiler has seen it then
        long[] took = run(group, topology, millis);
        Arrays.sort(took);
        System.out.println(scenario + " " + took[took.length / 2]);
    }

    /** Assigns again and again, with a new assignor each time as the coordinator does not keep state in it either. */
    static long[] run(Map<String, MemberMetadataAndStateImpl> group, TopologyDescriber topology, int millis) throws Exception {
        List<Long> took = new ArrayList<>();
        for (long end = System.nanoTime() + millis * 1_000_000L; took.size() < 3 || System.nanoTime() < end; ) {
            GroupSpecImpl spec = spec(group);
            long begin = System.nanoTime();
            int n = new StickyTaskAssignor().assign(spec, topology).members().size();
            took.add(System.nanoTime() - begin);
            if (n != group.size()) throw new IllegalStateException(n + " members of " + group.size() + " have a target");
        }
        return took.stream().mapToLong(Long::longValue).toArray();
    }
}
