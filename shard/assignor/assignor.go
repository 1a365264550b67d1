package assignor

// Task is one task: a partition of a subtopology.
type Task struct {
	Subtopology string
	Partition   int32
}

// Tasks is a set of tasks, ascending by subtopology id and partition. A slice and not a map of maps: a large group has tens of
// thousands of tasks, and its shard serves nobody else while they are placed.
type Tasks []Task

// Member is what the assignor knows of a member (a stream thread).
type Member struct {
	MemberID   string
	ProcessID  string
	InstanceID string
	RackID     string
	ClientTags map[string]string
	// Active, Standby and Warmup are the tasks the member is assigned now, without those pending revocation.
	Active, Standby, Warmup Tasks
	// TaskOffsets are the changelog positions that the member reported last.
	TaskOffsets map[Task]int64
}

// Subtopology is what the assignor knows of a subtopology.
type Subtopology struct {
	ID       string
	Tasks    int32 // number of tasks
	Stateful bool  // has a changelog
}

// Spec is the input: subtopologies ascending by id, members ascending by member id (a deliberate difference to Kafka, which iterates a hash map: see
// docs/differences.md).
type Spec struct {
	Members            []Member
	Subtopologies      []Subtopology
	NumStandbyReplicas int
	RackAwareTags      []string
}

// Target is the tasks of one member; empty sets are nil.
type Target struct {
	Active, Standby Tasks
}

// Assignor computes the targets of all members, by member id. It is a pure function.
type Assignor interface {
	Name() string
	Assign(Spec) (map[string]Target, error)
}
