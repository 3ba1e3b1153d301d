package main

import (
	"fmt"
	"strings"
)

// metric is what a row gives, and its unit.
type metric struct{ name, unit string }

// testCase holds the keys of a case; those that do not belong to its experiment are left out.
type testCase struct {
	Kind       string `json:"kind,omitempty"`
	Population *int   `json:"population,omitempty"`
	Timers     int    `json:"timers,omitempty"`
	DurationMs int    `json:"duration_ms,omitempty"`
	Regime     string `json:"regime,omitempty"`
	Workers    int    `json:"workers,omitempty"`
}

// experiment is a question, under the names by which its rows meet those of other programs.
type experiment struct {
	name    string
	metrics []metric
	cases   func(o *options) []testCase
	measure func(o *options, s *system, c testCase, r rows)
}

// experiments is filled by init: its functions reach the table through the options that name one of its entries.
var experiments []*experiment

func init() {
	perPair := []metric{{"arm_cancel", "ns/op"}, {"process_cpu", "ns/op"}}
	experiments = []*experiment{
		{"ready_path", []metric{{"above_bare", "ns/op"}, {"poll", "ns/op"}}, readyCases, measureReady},
		{"arm_cancel", perPair, pairCases, measurePairs},
		{"allocs", []metric{{"allocations", "1/op"}, {"bytes", "B/op"}}, allocCases, measureAllocs},
		{"scaling", perPair, scalingCases, measureScaling},
		{"accuracy", []metric{{"callback_start", "ms"}}, accuracyCases, measureAccuracy},
		{"memory", []metric{{"held", "B"}, {"rss", "B"}}, memoryCases, measureMemory},
		{"soak", nil, func(*options) []testCase { return nil }, nil}, // asks for a wake-up that pingora may lose
	}
}

func experimentByName(name string) (*experiment, error) {
	names := make([]string, len(experiments))
	for at, e := range experiments {
		if e.name == name {
			return e, nil
		}
		names[at] = e.name
	}
	return nil, fmt.Errorf("unknown experiment '%s'; known are %s", name, strings.Join(names, ", "))
}

func readyCases(*options) []testCase {
	return []testCase{{Kind: "ready", DurationMs: 1000}}
}

func pairCases(*options) []testCase {
	var cases []testCase
	for _, population := range []int{0, 10_000, 1_000_000} {
		cases = append(cases, testCase{
			Kind: "article", Population: &population, DurationMs: 1000, Regime: "saturating",
		})
	}
	return cases
}

func allocCases(*options) []testCase {
	return []testCase{{Kind: "article", DurationMs: 1000}}
}

func scalingCases(*options) []testCase {
	return []testCase{{Workers: 1}, {Workers: 2}, {Workers: 4}, {Workers: 8}}
}

func accuracyCases(*options) []testCase {
	var cases []testCase
	for _, ms := range []int{1, 5, 10, 25, 100} {
		cases = append(cases, testCase{DurationMs: ms})
	}
	return cases
}

func memoryCases(o *options) []testCase {
	return []testCase{{Kind: "cancelled", Timers: pick(o, 200_000, 1_000_000), DurationMs: 60_000}}
}
