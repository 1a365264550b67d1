package explain

import "time"

// Group is what the coordinator tells of one group, all of one moment.
type Group struct {
	Format int       `json:"format"`
	At     time.Time `json:"at"`    // by the coordinator's clock; all other times are by the same
	State  string    `json:"state"` // as in the group's description
	// Reasons say why the state is what it is, the most important first. A stable group whose members are all heard of has none.
	Reasons     []Reason    `json:"reasons"`
	Description Description `json:"topologyDescription"`

	// Epochs are the topology epochs of which the plugin holds a description, ascending, where they were asked for; EpochsError says why
	// they can't be told.
	Epochs      []int32 `json:"epochs,omitempty"`
	EpochsError string  `json:"epochsError,omitempty"`
	// TopologyEpoch is the epoch of the description in this answer, where one was asked for.
	TopologyEpoch *int32 `json:"topologyEpoch,omitempty"`
}

// Code names a kind of reason, for programs.
type Code string

// The reasons of a state. A group can have several.
const (
	NoMembers  Code = "no-members" // Empty
	Converting Code = "converting" // Empty: to a classic group of the cluster

	NoTopology            Code = "no-topology"             // NotReady: nobody has sent one
	MissingSourceTopics   Code = "missing-source-topics"   // NotReady: somebody has to make them
	WrongPartitionCounts  Code = "wrong-partition-counts"  // NotReady: topics do not fit each other, or an internal topic its application
	MissingInternalTopics Code = "missing-internal-topics" // NotReady: being created, or they can't be
	InvalidTopology       Code = "invalid-topology"        // NotReady: no change of topics can cure it
	TopicsUnknown         Code = "topics-unknown"          // the cluster does not tell of its topics
	NextHeartbeat         Code = "next-heartbeat"          // what was in the way is gone; the next heartbeat of any member goes on

	InitialDelay       Code = "initial-delay"       // Assigning: a new group waits for more members
	AssignmentInterval Code = "assignment-interval" // Assigning: assignments do not follow each other faster

	GivingUpTasks   Code = "giving-up-tasks"   // Reconciling: a member has been told to give tasks up, and has not said that it did
	WaitingForTasks Code = "waiting-for-tasks" // Reconciling: tasks of the member's target are held by others
	BehindTarget    Code = "behind-target"     // Reconciling: the member's next heartbeat moves it on
	StaticMemberOut Code = "static-member-out" // Reconciling: it left for a while and keeps its tasks until its session ends

	SilentMember      Code = "silent-member"       // any state: not heard of for longer than two heartbeat intervals
	OldTopology       Code = "old-topology"        // any state: the member runs an older topology and gets no tasks of it
	MissingClientTags Code = "missing-client-tags" // any state: standby tasks of the member can't be spread as configured
	ShutdownWished    Code = "shutdown-wished"     // any state: a member asked for the application to be shut down
	Untold            Code = "untold"              // the coordinator does not say why
	MoreOfTheseLeft   Code = "more-of-the-same"    // reasons of one code beyond the bound were left out
)

// Reason is one reason. Which fields are set depends on the code.
type Reason struct {
	Code Code `json:"code"`
	// Text is a sentence without times; where Kafka tells members the same, it has Kafka's words.
	Text string `json:"text"`
	// Todo says what an operator can do about it, where that is known.
	Todo string `json:"todo,omitempty"`

	Topics []Topic  `json:"topics,omitempty"`
	Member string   `json:"member,omitempty"`
	Tasks  []string `json:"tasks,omitempty"` // as Streams names them, "0_3"
	// Holders are the members that hold Tasks.
	Holders []string   `json:"holders,omitempty"`
	Since   *time.Time `json:"since,omitempty"` // at the latest since the coordinator took the group over
	Until   *time.Time `json:"until,omitempty"` // when it ends by itself, or somebody is removed because of it
	// Count is the number of reasons that were left out.
	Count int `json:"count,omitempty"`
}

// Topic is a topic that is in the way.
type Topic struct {
	Name string `json:"name"`
	// Expected and Found are partition counts; 0 where there is none.
	Expected int32 `json:"expected,omitempty"`
	Found    int32 `json:"found,omitempty"`
	// Creating says that its creation is under way; Failure why the last one failed, and RetryAt until when it is not tried again.
	Creating bool       `json:"creating,omitempty"`
	Failure  string     `json:"failure,omitempty"`
	RetryAt  *time.Time `json:"retryAt,omitempty"`
}

// Millis is the time of that many milliseconds since 1970.
func Millis(ms int64) *time.Time {
	t := time.UnixMilli(ms).UTC()
	return &t
}

// At is t without what JSON would not carry; nil where t is zero.
func At(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return Millis(t.UnixMilli())
}
