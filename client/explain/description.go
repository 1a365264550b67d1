package explain

import "time"

// Cause says where a topology description is, or why it is not there.
type Cause string

// The causes. On the wire Stored is status 3, Unavailable 2, all others are 1 (KIP-1331).
const (
	NoPlugin    Cause = "no-plugin"   // the coordinator keeps no descriptions
	NoneToAsk   Cause = "no-topology" // the group has no topology yet
	Stored      Cause = "stored"      // the plugin has it
	Lost        Cause = "lost"        // the log says that it is stored, the plugin has none
	Unavailable Cause = "unavailable" // the plugin can't say right now
	Refused     Cause = "refused"     // the plugin refused it for good
	Failed      Cause = "failed"      // the last push failed for now
	Pushing     Cause = "pushing"     // a push is under way
	Waiting     Cause = "waiting"     // a member was asked a moment ago
	NoAnswer    Cause = "no-answer"   // members were asked and do not push
	NobodyThere Cause = "no-members"  // the group has no members that could be asked
	OldClient   Cause = "old-client"  // the members speak a protocol from before descriptions
	AllBehind   Cause = "all-behind"  // the members run an older topology than the group's
	NotTold     Cause = "untold"      // the coordinator does not say why
	NeverAsked  Cause = "never-asked" // the next heartbeat of a member asks
)

// Description tells of the topology description of a group. Counts and times of questions and failures are those of this coordinator since
// it took the group over, or since the description was stored last.
type Description struct {
	Cause Cause  `json:"cause"`
	Text  string `json:"text"` // sentences without times
	Todo  string `json:"todo,omitempty"`

	Plugin        string `json:"plugin,omitempty"`
	TopologyEpoch int32  `json:"topologyEpoch"` // -1: none
	// StoredEpoch is the epoch that the plugin holds for sure: -1 none, -2 not certain; FailedEpoch the one it refused for good.
	StoredEpoch int32 `json:"storedEpoch"`
	FailedEpoch int32 `json:"failedEpoch"`
	// StoredAt is when the plugin took the description; nil where nothing is stored, or it was before the coordinator took the group over.
	StoredAt *time.Time `json:"storedAt,omitempty"`

	// Asked counts the questions; AskedAt is the time of the last one, Member whom it went to. NextAsk is until when nobody is asked.
	Asked   int        `json:"asked,omitempty"`
	AskedAt *time.Time `json:"askedAt,omitempty"`
	Member  string     `json:"member,omitempty"`
	NextAsk *time.Time `json:"nextAsk,omitempty"`

	// Reason are the plugin's words: of the refusal, of the last failure, or why it can't be read. ReasonAt is when it said so.
	Reason   string     `json:"reason,omitempty"`
	ReasonAt *time.Time `json:"reasonAt,omitempty"`
	Failures int        `json:"failures,omitempty"`

	// Lost counts how often it was found to be lost since the coordinator took the group over.
	Lost   int        `json:"lost,omitempty"`
	LostAt *time.Time `json:"lostAt,omitempty"`
}
