package groupconfig

import "slices"

// Source says where a value is from, by the numbers of DescribeConfigs.
type Source int8

// The sources that occur.
const (
	FromSettings Source = 4 // STATIC_BROKER_CONFIG: the operator set it
	FromDefault  Source = 5 // DEFAULT_CONFIG
	FromGroup    Source = 8 // GROUP_CONFIG
)

// Entry is one described configuration.
type Entry struct {
	Name, Value string
	Type        Type
	Source      Source
	// Synonyms are all values there are, the one that counts first.
	Synonyms []Synonym
	Doc      string
}

// Synonym is a value, by the name under which it was given.
type Synonym struct {
	Name, Value string
	Source      Source
}

// Describe describes a configuration (ConfigHelper of Kafka 4.4): what is configured, and what could be. wanted are the names that are
// asked for; none: all.
func (b *Broker) Describe(configs map[string]string, wanted []string) []Entry {
	var entries []Entry
	for i := range definitions {
		d := &definitions[i]
		text, configured := configs[d.name]
		if d.hidden && !configured || len(wanted) > 0 && !slices.Contains(wanted, d.name) {
			continue
		}
		entries = append(entries, b.describe(d, text, configured))
	}
	return entries
}

func (b *Broker) describe(d *definition, text string, configured bool) Entry {
	twin := b.values[d.twin]
	e := Entry{Name: d.name, Value: twin.parsed.text, Type: d.typ, Doc: twin.setting.Doc}
	if d.name == assignorName {
		e.Value = b.config.Assignor
	}
	if configured {
		e.Value = text // an internal one as it was written, in Kafka as well
		if p, err := parse(d.typ, d.min, d.name, text); err == nil && !d.hidden {
			e.Value = p.text
		}
		e.Synonyms = append(e.Synonyms, Synonym{d.name, e.Value, FromGroup})
	}
	if twin.set {
		e.Synonyms = append(e.Synonyms, Synonym{d.twin, twin.parsed.text, FromSettings})
	}
	e.Synonyms = append(e.Synonyms, Synonym{d.twin, twin.setting.Default, FromDefault})
	e.Source = e.Synonyms[0].Source
	return e
}
