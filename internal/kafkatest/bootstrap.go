package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tckafka "github.com/testcontainers/testcontainers-go/modules/kafka"
)

// containerImage is the Kafka that Docker runs: the image the testcontainers module is made for.
const containerImage = "confluentinc/confluent-local:7.5.0"

const (
	dockerProbeTimeout = 10 * time.Second
	dockerStartTimeout = 5 * time.Minute // the first time the image is downloaded
)

var container struct {
	sync.Mutex
	running *tckafka.KafkaContainer
}

// Bootstrap returns the address of some Kafka cluster for tests that don't mind which one: $KAFKA_BOOTSTRAP if it is
// set; else a container, where Docker answers; else a JVM broker (Shared with the zero Options). One is started per
// test binary; tests must use topics and groups of their own. Where there is nothing to start one with, the test is
// skipped, in CI it fails. It is skipped with go test -short, too.
func Bootstrap(tb testing.TB) string {
	tb.Helper()
	if b := os.Getenv("KAFKA_BOOTSTRAP"); b != "" {
		return b
	}
	if testing.Short() {
		tb.Skip("skipped: -short, and this test starts a Kafka")
	}
	dockerErr := dockerAnswers()
	if dockerErr == nil {
		b, err := containerBootstrap()
		if err != nil {
			tb.Fatalf("start Kafka in Docker: %v", err)
		}
		return b
	}
	if err := HasJava(); err != nil {
		missing(tb, "no Kafka: KAFKA_BOOTSTRAP is not set, Docker does not answer (%v), and %v", dockerErr, err)
	}
	return Shared(tb, Options{}).Bootstrap()
}

// dockerAnswers is testcontainers' health check. Its look at the environment panics on some machines without Docker;
// that is "no" as well.
var dockerAnswers = sync.OnceValue(func() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), dockerProbeTimeout)
	defer cancel()
	provider, err := testcontainers.ProviderDocker.GetProvider()
	if err != nil {
		return err
	}
	return provider.Health(ctx)
})

func containerBootstrap() (string, error) {
	container.Lock()
	defer container.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), dockerStartTimeout)
	defer cancel()
	if container.running == nil {
		k, err := tckafka.Run(ctx, containerImage)
		if err != nil {
			return "", err
		}
		container.running = k
	}
	brokers, err := container.running.Brokers(ctx)
	if err != nil {
		return "", err
	}
	if len(brokers) == 0 {
		return "", errors.New("the container names no broker")
	}
	return brokers[0], nil
}

// stopContainer is called by Main; without it testcontainers' own reaper removes the container a little later.
func stopContainer() {
	container.Lock()
	defer container.Unlock()
	if container.running != nil {
		_ = testcontainers.TerminateContainer(container.running)
		container.running = nil
	}
}
