package main

import (
	"slices"
	"strings"
	"testing"
)

func TestAVisitTakesEverySystemUnlessTold(t *testing.T) {
	o, err := parse(strings.Fields("--experiment allocs --round 1 --seed 2 --quick"))
	if err != nil || len(o.systems) != len(systems) || o.full || o.action != actionVisit {
		t.Fatalf("%+v, %v", o, err)
	}
	o, err = parse(strings.Fields("--verify --system timer"))
	if err != nil || len(o.systems) != 1 || o.systems[0] != newTimer {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestMistakesNameTheValueAndWhatWouldBeRight(t *testing.T) {
	for _, one := range []struct{ line, value, right string }{
		{"--experiment nosuch", "nosuch", "arm_cancel"},
		{"--verify --system nosuch", "nosuch", "original/go/after_func"},
		{"--experiment allocs --round x", "'x'", "whole number"},
		{"--experiment allocs --round 1 --seed 1", "--quick", "--full"},
		{"--fast", "--fast", "--experiment"},
		{"--seed", "--seed", "value"},
	} {
		_, err := parse(strings.Fields(one.line))
		if err == nil || !strings.Contains(err.Error(), one.value) || !strings.Contains(err.Error(), one.right) {
			t.Errorf("%s: %v", one.line, err)
		}
	}
}

func TestAShuffleKeepsEverythingAndFollowsItsSeed(t *testing.T) {
	shuffled := func(seed uint64) []int {
		items := make([]int, 100)
		for at := range items {
			items[at] = at
		}
		shuffle(newRandom(seed, 0), items)
		return items
	}
	if !slices.Equal(shuffled(1), shuffled(1)) || slices.Equal(shuffled(1), shuffled(2)) {
		t.Error("the order does not follow the seed")
	}
	sorted := shuffled(1)
	slices.Sort(sorted)
	for at, item := range sorted {
		if at != item {
			t.Fatalf("%d is at %d once sorted", item, at)
		}
	}
}
