package eventlog

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestEachProduceRequestIsASpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("test")
	c := fakeCluster(t, kfake.NumBrokers(1))
	k := open(t, c.ListenAddrs(), partitions(1), func(c *KafkaConfig) { c.Tracer = tracer })
	w := claim(t, k, 0)
	before := len(spans.Ended())
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: testTopic, Err: kerr.NotEnoughReplicas})
	mustPut(t, w, kv("a", "1"), kv("b", "2"))
	k.Close()
	ended := spans.Ended()[before:]
	if len(ended) != 2 || ended[0].Status().Code != codes.Error || ended[1].Status().Code != codes.Unset {
		t.Fatalf("a failed and a good request: %+v", ended)
	}
	for _, span := range ended {
		got := attribute.NewSet(span.Attributes()...)
		for key, want := range map[attribute.Key]attribute.Value{
			"partitions": attribute.IntValue(1), "records": attribute.IntValue(2), "broker": attribute.IntValue(0),
			"messaging.destination.name": attribute.StringValue(testTopic),
		} {
			if v, ok := got.Value(key); !ok || v != want {
				t.Errorf("%s is %v, want %v", key, v.Emit(), want.Emit())
			}
		}
		if v, ok := got.Value("bytes"); !ok || v.AsInt64() < batchOverhead || span.Name() != "append" {
			t.Errorf("span %s of %v bytes", span.Name(), v.Emit())
		}
	}
}

func TestCloseEndsEveryGoroutine(t *testing.T) {
	c := fakeCluster(t)
	ignore := goleak.IgnoreCurrent()
	k := open(t, c.ListenAddrs(), partitions(5))
	m := newMemory()
	ended := follow(t, k, m)
	for p := range int32(5) {
		mustPut(t, claim(t, k, p), kv("a", "1"))
		reaches(t, k, m, p)
	}
	k.Close()
	<-ended
	goleak.VerifyNone(t, ignore, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"),
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"))
}
