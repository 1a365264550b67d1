// Package kafkatest gives tests real things to run against: Apache Kafka brokers of several versions, Kafka's own
// command line tools, a real Kafka Streams application, and streamkeeper itself as a process.
//
// The Java side comes through Maven (tests/jvm/pom.xml) into a cache folder of the repository, .cache, or
// $STREAMKEEPER_CACHE. Nothing is installed on the machine; what is started here dies with the test.
//
// A test that only needs some Kafka cluster calls Bootstrap. A test that wants a certain version, several brokers, or
// to stop and kill them, calls Start (a cluster of its own) or Shared (one cluster for all tests of a test binary,
// which is what makes a package of end-to-end tests bearable on a small machine).
//
// Without Java or Maven a test is skipped with a message that says so; where the environment variable CI is set that
// is a failure instead, so that a green run always means that the tests ran.
//
// The package is for tests alone: it fails through testing.TB, and its functions must be called from the test's own
// goroutine unless they say otherwise.
//
// File map:
//
//	cache.go      the cache folder; lock.go
//	jars.go       the jars of a Kafka version; classes.go: Java sources compiled against them
//	spawn.go      child processes that die with the test binary; proc_linux.go, proc_other.go
//	process.go    one child process: output, signals, waiting
//	ports.go      loopback ports nobody else takes
//	workdir.go    working directories, and removal of those that dead test binaries left
//	cluster.go    brokers: start, stop, kill, restart
//	properties.go a broker's server.properties
//	alter.go      another heap, another property, from a broker's next start on
//	bootstrap.go  "some Kafka": $KAFKA_BOOTSTRAP, Docker, or a JVM broker
//	tools.go      Kafka's command line tools; toolsession.go: many calls in one JVM; peak_linux.go, peak_other.go: what one takes
//	app.go        the Streams applications of tests/jvm
//	host.go       many instances of them in one JVM
//	events.go     what they tell of themselves
//	keeper.go     streamkeeper as a process; older.go: of a former commit
//	disk_linux.go small file systems that get full, and read-only ones; disk_other.go
//	member.go     a member of a streams group by hand; ask.go: requests about groups, and what is refused in their answers
//	acls.go       who may do what at a cluster; stranger.go: writing in another's name
//	relay.go      between a replica and the cluster: what passes is held back, altered, made up
//	topics.go     topics and committed offsets through the admin client
//	jaeger.go     Jaeger, to look at traces
//	load.go       numbered records in, and what came out of the application
//	tenure.go     who had a task when, by the records it wrote: no task has two owners
package kafkatest
