package kip1331

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// entry is a class of the plan, or what a plugin may do.
type entry struct {
	class, about string
	tests        []string
	missing      string
}

// plan is the test plan of KIP-1331, and the test classes of Kafka 4.4 that belong to it, each with its counterparts here:
// "package Test/Subtest". A class without any says why.
var plan = []entry{
	// The integration tests of the KIP's plan.
	{class: "StreamsGroupTopologyDescriptionUpdateRequestTest", about: "push, permanent and transient failures, the heartbeat's flag, fencing, deletion with the plugin's success and failure, converging afterwards", tests: []string{
		"tests/kip1331 TestAgainstABroker/Push/HappyPath", "tests/kip1331 TestAgainstABroker/Push/Refusals", "tests/kip1331 TestAgainstABroker/Push/Outcomes",
		"tests/kip1331 TestAgainstABroker/Solicitation/Versions", "tests/kip1331 TestAgainstABroker/Solicitation/OneMember", "tests/kip1331 TestAgainstABroker/Solicitation/StaleTopology",
		"tests/kip1331 TestAgainstABroker/Solicitation/Refused", "tests/kip1331 TestAgainstABroker/Delete/Outcomes", "tests/kip1331 TestAgainstABroker/Delete/AfterAFailureTheGroupLivesOn",
		"tests/kip1331 TestAgainstABroker/Random", "tests/differential TestRandomLivesOfDescriptions",
	}},
	{class: "StreamsGroupTopologyDescriptionUpdateNoPluginRequestTest", about: "without a plugin pushes are refused, nobody is asked, a describe says that nothing is stored", tests: []string{
		"tests/differential TestWithoutAPlugin", "cmd/streamkeeper TestWithoutPluginNobodyIsAsked", "shard TestNobodyIsWantedWithoutPlugin",
	}},
	{class: "AuthorizerIntegrationTest", about: "READ on the GROUP for a push", missing: "requests about streams groups are not authorized yet (docs/gaps.md, ACLs)"},
	{class: "TopologyDescriptionPluginIntegrationTest", about: "a real application against an in-memory plugin, statuses of a describe, opting out", tests: []string{
		"tests/e2e TestTopologyEmbeddedLog", "tests/e2e TestTopologyServeBefore44", "tests/e2e TestPluginIsSwitchedOnAndOffReplicaByReplica", "client TestAJavaApplicationOnKafka", "client TestOptingOutOnKafka",
		"tests/kip1331 TestAgainstABroker/Describe/Statuses",
	}},
	{class: "TopologyDescriptionFormatterTest", about: "each status, the text, exit codes", tests: []string{
		"client/topology TestTextEqualsKafkasTool", "client/topology TestTextOfWhatIsRare", "client TestWriteTopology", "cmd/streamkeeper TestDescriptionsWithThePluginMemory",
	}},
	{class: "StreamsGroupCommandTest", about: "--describe --topology of a group that is there", tests: []string{"tests/e2e TestTopologyServeBefore44", "tests/e2e TestTopologyEmbeddedLog"}},

	// The units, by the class that owns the rule.
	{class: "StreamsGroupTopologyDescriptionManagerTest", about: "asking, calls of the plugin and their outcomes, the cleanup cycle", tests: []string{
		"internal/coordinator TestAMemberIsAskedOncePerWindow", "internal/coordinator TestOutcomesOfAPush", "plugin TestWhatAPluginMayDoToSet", "plugin TestGetOutcomes", "plugin TestDeleteOutcomes",
		"cleanup TestWhatFailsIsLeftToTheNextCycle", "cleanup TestOnlyOneCycleAtATime", "tests/differential TestExpiryWithAPluginThatFails", "tests/kip1331 TestAgainstABroker/Solicitation/AfterAPush",
	}},
	{class: "StreamsGroupTopologyDescriptionBackoffTest", about: "delays, jitter, epochs", tests: []string{
		"plugin TestBackoffDelays", "plugin TestBackoffRules", "plugin TestBackoffAgainstAModel", "tests/differential TestWindowsOfAskingForADescription", "tests/differential TestWindowsAfterFailures",
	}},
	{class: "StreamsGroupTopologyDescriptionConverterTest", about: "the wire and the plugin's value", tests: []string{
		"tests/kip1331 TestAgainstABroker/Push/Conversion", "internal/coordinator TestDescriptionsAreConverted", "plugin TestNormalizeIsKafkasConverter", "plugin TestValidateSpeaksKafkasWords",
	}},
	{class: "InMemoryTopologyDescriptionPluginTest", about: "the plugin in memory", tests: []string{"plugin/memory TestConformance"}},
	{class: "GroupCoordinatorServiceTest", about: "order of the checks; describe and delete of several groups; shutdown", tests: []string{
		"internal/coordinator TestPushIsCheckedInKafkasOrder", "internal/coordinator TestDescribeShowsDescriptions", "internal/coordinator TestDeleteGroupsDeletesDescriptionsFirst",
		"internal/coordinator TestCloseClosesThePlugin", "tests/kip1331 TestAgainstABroker/Describe/Outcomes", "tests/kip1331 TestAgainstABroker/Delete/OneRequest",
	}},
	{class: "GroupMetadataManagerTest", about: "marker, outcomes, epochs, conversion by a classic join", tests: []string{
		"shard/streams TestDescriptionEpochs", "shard/streams TestWantsDescription", "shard TestOverlappingPushAndDeletionStayUncertain", "tests/crash TestKilledAtEachStep", "tests/kip1331 TestAgainstABroker/Delete/OverlappingAPush", "tests/kip1331 TestAgainstABroker/Conversion/TheDescriptionGoesFirst",
		"tests/kip1331 TestAgainstABroker/Conversion/APluginThatFails", "internal/coordinator TestAPluginThatDoesNotDeleteThrottlesConversions",
	}},
	{class: "GroupCoordinatorShardTest", about: "the sweep leaves a group that may have a description", tests: []string{
		"shard TestAGroupStaysAsLongAsItsDescription", "cleanup TestDescriptionsGoBeforeTheSweep", "tests/differential TestExpiry", "tests/differential TestExpiryWithoutADescription",
	}},
	{class: "KafkaApisTest", about: "versions, error codes of older versions", tests: []string{
		"tests/kip1331 TestAgainstABroker/Describe/Versions", "tests/kip1331 TestAgainstABroker/Delete/Outcomes", "internal/gateway TestTopologyUpdateIsOfferedWhereDescriptionsAreKept",
	}},
	{class: "TopologyDescriptionConverterTest", about: "the client's side of the wire", tests: []string{"client/topology TestToWireOrdersAsKafkasClientDoes", "client TestApplicationsEqualJavas"}},
	{class: "StreamsGroupTopologyDescriptionRequestManagerTest", about: "when a client pushes, and what it does with the answer", tests: []string{
		"client TestThePush", "client TestNobodyPushesUnasked", "client TestPushOutcomes", "client TestPushesThatAreTriedAgain", "client TestThrottling", "client TestAFenceClearsTheWish",
	}},
	{class: "DescribeStreamsGroupsHandlerTest", about: "what an admin client makes of an answer", tests: []string{"client TestWhatADescribeAnswerMeans", "client TestEverythingOfADescription", "client TestANodeOfVersion0"}},
}

// faults are the ways in which a plugin may break its contract, and what shows that each harms nobody.
var faults = []entry{
	{class: "a method that panics", tests: []string{"plugin TestWhatAPluginMayDoToSet", "plugin TestLogHasTheCauseAndTheStack", "tests/kip1331 TestAgainstABroker/Push/Outcomes", "tests/traces TestTraces"}},
	{class: "no future", tests: []string{"plugin TestWhatAPluginMayDoToSet", "plugin TestGetOutcomes", "plugin TestDeleteOutcomes", "tests/kip1331 TestAgainstABroker/Delete/Outcomes", "tests/traces TestTraces"}},
	{class: "no value", tests: []string{"plugin TestGetOutcomes", "tests/kip1331 TestAgainstABroker/Describe/Outcomes", "internal/coordinator TestDescribeShowsDescriptions"}},
	{class: "a future that never completes", tests: []string{"plugin TestTimeOutIsTransient", "plugin TestBatchOfADeadPlugin", "plugin TestCloseDoesNotHang", "tests/kip1331 TestAgainstABroker/Differences/AFutureThatNeverCompletes", "tests/traces TestTraces"}},
	{class: "a method that does not return", tests: []string{"plugin TestBlockingMethod", "plugin TestBusy"}},
	{class: "a future that completes too late", tests: []string{"plugin TestLateCompletion", "tests/kip1331 TestAgainstABroker/Differences/AFutureThatCompletesLate", "tests/traces TestTraces"}},
	{class: "a future that completes twice", tests: []string{"plugin TestFutureCompletesOnce", "plugin TestFutureReportsRepeats", "tests/kip1331 TestAgainstABroker/Push/Outcomes"}},
	{class: "a future that completes when the shard has moved", tests: []string{"plugin TestShardMoves", "internal/coordinator TestAPushEndsWithTheShard", "cleanup TestTheStepEndsWithTheShard", "shard TestAReplacedReplicaCantWriteTheOutcome"}},
	{class: "an error with a text of a megabyte", tests: []string{"plugin TestWhatAPluginMayDoToSet", "plugin TestMessagesAreCut", "tests/kip1331 TestAgainstABroker/Differences/AMessageThatDoesNotFit"}},
	{class: "a description of megabytes", tests: []string{"tests/kip1331 TestAgainstABroker/Push/Large", "plugin/conformance TestSuiteFindsFaults"}},
	{class: "a value that is changed afterwards", tests: []string{"plugin TestValuesAreCopies"}},
}

// TestThePlanIsComplete: every test that the plan names is there.
func TestThePlanIsComplete(t *testing.T) {
	packages := map[string]*names{}
	for _, p := range slices.Concat(plan, faults) {
		if (len(p.tests) == 0) == (p.missing == "") {
			t.Errorf("%s: either tests, or why there are none", p.class)
		}
		for _, name := range p.tests {
			dir, test, _ := strings.Cut(name, " ")
			if packages[dir] == nil {
				packages[dir] = namesIn(t, dir)
			}
			parts := strings.Split(test, "/")
			if !packages[dir].functions[parts[0]] {
				t.Errorf("%s: there is no %s in %s", p.class, parts[0], dir)
			}
			for _, sub := range parts[1:] {
				if !packages[dir].subtests[sub] {
					t.Errorf("%s: there is no subtest %s in %s", p.class, sub, dir)
				}
			}
		}
	}
}

// names are the test functions of a package, and the names that t.Run gets as they are.
type names struct{ functions, subtests map[string]bool }

func namesIn(t *testing.T, dir string) *names {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(kafkatest.RepoDir(), filepath.FromSlash(dir), "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	n := &names{functions: map[string]bool{}, subtests: map[string]bool{}}
	for _, f := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			switch x := node.(type) {
			case *ast.FuncDecl:
				n.functions[x.Name.Name] = true
			case *ast.CallExpr:
				run, ok := x.Fun.(*ast.SelectorExpr)
				if !ok || run.Sel.Name != "Run" || len(x.Args) != 2 {
					break
				}
				if lit, ok := x.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil {
						n.subtests[s] = true
					}
				}
			}
			return true
		})
	}
	return n
}
