package explain

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time { return At(at.Add(-d)) }

func TestQuestionAndAnswerThroughTheWire(t *testing.T) {
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Version, req.Groups = 1, []string{"g"}
	plain := req.AppendTo(nil)
	epoch := int32(0)
	Question{Epochs: true, TopologyEpoch: &epoch}.Put(&req.UnknownTags)
	read := kmsg.NewPtrStreamsGroupDescribeRequest()
	read.Version = 1
	if err := read.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	q, ok := QuestionOf(&read.UnknownTags)
	if want := (Question{Format, true, &epoch}); !ok || !reflect.DeepEqual(q, want) {
		t.Errorf("read %+v, %v; want %+v", q, ok, want)
	}
	without := kmsg.NewPtrStreamsGroupDescribeRequest()
	without.Version = 1
	if err := without.ReadFrom(plain); err != nil {
		t.Fatal(err)
	}
	if _, ok := QuestionOf(&without.UnknownTags); ok {
		t.Error("a question that nobody asked")
	}

	resp := kmsg.NewPtrStreamsGroupDescribeResponse()
	resp.Version = 1
	resp.Groups = []kmsg.StreamsGroupDescribeResponseGroup{kmsg.NewStreamsGroupDescribeResponseGroup(), kmsg.NewStreamsGroupDescribeResponseGroup()}
	g := &Group{At: at, State: "NotReady", Reasons: []Reason{{Code: MissingSourceTopics, Text: "t", Topics: []Topic{{Name: "in", Expected: 2, RetryAt: ago(0)}}, Since: ago(time.Second)}},
		Description: Description{Cause: Refused, Reason: "too \"odd\"\n", TopologyEpoch: 0, StoredEpoch: -2}, Epochs: []int32{0, 3}}
	g.Put(&resp.Groups[0].UnknownTags)
	back := kmsg.NewPtrStreamsGroupDescribeResponse()
	back.Version = 1
	if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if got, err := GroupOf(&back.Groups[0].UnknownTags); err != nil || !reflect.DeepEqual(got, g) {
		t.Errorf("read %+v, %v\nwant %+v", got, err, g)
	}
	if got, err := GroupOf(&back.Groups[1].UnknownTags); err != nil || got != nil {
		t.Errorf("where there is no answer: %+v, %v", got, err)
	}
}

// An answer about names without end can still be read.
func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 16_000)
	g := &Group{State: "Reconciling", Description: Description{Cause: Refused, Reason: long}}
	for range 40 {
		g.Reasons = append(g.Reasons, Reason{Code: GivingUpTasks, Text: long, Member: long, Tasks: []string{long, long}, Holders: []string{long}, Topics: []Topic{{Name: long}}, Until: ago(0)})
	}
	var tags kmsg.Tags
	g.Put(&tags)
	got, err := GroupOf(&tags)
	if err != nil || len(got.Reasons) != 40 || got.Description.Cause != Refused || got.Reasons[39].Until == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	size := 0
	tags.Each(func(_ uint32, b []byte) { size = len(b) })
	if size > answerBytesMax || !utf8.ValidString(got.Reasons[0].Member) || !strings.HasSuffix(got.Reasons[0].Text, "…") || len(g.Reasons[0].Tasks) != 2 {
		t.Errorf("%d bytes: %+v", size, got.Reasons[0])
	}
}

// A question that can't be read is no question; an answer that can't be read is an error that says so.
func TestWhatCanNotBeRead(t *testing.T) {
	for _, c := range []struct{ value, err string }{
		{`{`, "the coordinator's explanation can't be read: unexpected end of JSON input"},
		{`{"format":2,"epochs":[]}`, "the coordinator's explanation can't be read: json"},
		{`{"format":2}`, "the coordinator's explanation has format 2, this program reads 1"},
		{``, "the coordinator's explanation can't be read"},
	} {
		var tags kmsg.Tags
		tags.Set(Tag, []byte(c.value))
		if q, ok := QuestionOf(&tags); ok {
			t.Errorf("%q is the question %+v", c.value, q)
		}
		if c.value == `{"format":2,"epochs":[]}` {
			continue // as an answer it is only of another format
		}
		if g, err := GroupOf(&tags); err == nil || !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%q: %+v, %v", c.value, g, err)
		}
	}
}

func TestTextOfReasons(t *testing.T) {
	many := make([]Topic, 12)
	for i := range many {
		many[i] = Topic{Name: "t", Creating: true}
	}
	for _, c := range []struct {
		r    Reason
		want string
	}{
		{Reason{Text: "No topics."}, "No topics."},
		{Reason{Text: "Kafka's sentence", Todo: "Make them."}, "Kafka's sentence. Make them."},
		{Reason{Text: "Late.", Since: ago(2500 * time.Millisecond), Until: ago(-40 * time.Second)}, "Late. (for 2.5s; 40s left)"},
		{Reason{Text: "Over.", Until: ago(time.Minute)}, "Over. (0s left)"},
		{Reason{Text: "Missing", Topics: []Topic{{Name: "a", Creating: true}, {Name: "b", Failure: "no\nright", RetryAt: ago(-3 * time.Second)}, {Name: "c"}}, Todo: "Do."},
			`Missing (a is being created; b could not be created: no\nright, tried again in 3s). Do.`},
		{Reason{Text: "Missing", Topics: many}, "Missing (" + strings.Repeat("t is being created; ", 10) + "2 more topics)"},
	} {
		if got := c.r.TextAt(at); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

func TestTextOfDescriptions(t *testing.T) {
	for _, c := range []struct {
		d    Description
		want string
	}{
		{Description{Text: "Stored."}, "Stored."},
		{Description{Text: "Stored.", StoredAt: ago(2 * time.Hour)}, "Stored. It was pushed 2h0m0s ago."},
		{Description{Text: "Waiting.", Asked: 1, AskedAt: ago(time.Second), Member: "m\x1b[2J", NextAsk: ago(-time.Minute)},
			`Waiting. Asked once, the last time 1s ago (member m\x1b[2J). Nobody is asked for another 1m0s.`},
		{Description{Text: "No answer.", Asked: 3, AskedAt: ago(time.Hour), NextAsk: ago(time.Second), Todo: "Look."},
			"No answer. Asked 3 times, the last time 1h0m0s ago. The next heartbeat of a member asks again. Look."},
		{Description{Text: "Refused.", Reason: "too \"large\"\n", ReasonAt: ago(time.Minute)}, `Refused. The plugin says: "too \"large\"\n", 1m0s ago.`},
	} {
		if got := c.d.TextAt(at); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
}

// Whatever ids and names hold, a text is one line of valid UTF-8 that moves no cursor and turns no direction.
func TestHostileNames(t *testing.T) {
	names := []string{"", ".", "a.b", `"'`, "\n\r\t", "\x1b[31m", "\u202eevil", "\u2066x", "\u2028", "🦆", "שלום", strings.Repeat("x", 10_000), "\xff\xfe", "\x00", "\u009b2J"}
	for _, name := range names {
		for _, text := range []string{
			Clean(name), Clean(Names([]string{name, name})),
			Reason{Text: "Member " + name, Todo: name, Topics: []Topic{{Name: name, Failure: name}}}.TextAt(at),
			Description{Text: name, Reason: name, Member: name, AskedAt: ago(0)}.TextAt(at),
		} {
			if !utf8.ValidString(text) || strings.ContainsAny(text, "\n\r\t\x00\x1b\u009b\u2028\u202e\u2066") {
				t.Errorf("%.40q is shown as %.80q", name, text)
			}
		}
		if b, err := json.Marshal(Reason{Member: name}); err != nil || !utf8.Valid(b) {
			t.Errorf("%.40q as JSON: %s, %v", name, b, err)
		}
	}
	if got := Names(names); !strings.HasSuffix(got, "and 5 more") {
		t.Errorf("a long list: %.80q", got)
	}
}
