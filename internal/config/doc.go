// Package config is what an operator can set: flags, a YAML file and STREAMKEEPER_ environment variables, in this order
// of precedence, and Kafka's own settings by Kafka's names.
//
//	flags.go     the flags of serve and dev, and the checks that concern one of them alone or two together
//	file.go      the YAML file: the same names as the flags
//	environment.go  variables that stand for no flag
//	settings.go  Kafka-named settings (--set), with Kafka 4.4's defaults, bounds and texts
//
// It reads files and the environment and nothing else; it starts nothing.
package config
