package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const usage = "usage: --experiment NAME --round N --seed S (--quick | --full) [--system SUBSTRING ...]" +
	" | --verify [--system SUBSTRING ...] | --list"

type action int

const (
	actionVisit action = iota
	actionCell         // one system x case, in this process
	actionVerify
	actionList
)

type options struct {
	action     action
	experiment *experiment
	round      uint64
	seed       uint64
	full       bool
	number     int // of the case, in a cell
	systems    []*system
}

// pick gives what belongs to the effort of this visit.
func pick[T any](o *options, quick, full T) T {
	if o.full {
		return full
	}
	return quick
}

// parse gives what the arguments ask for, or an error of one line that says which of them is wrong and what would be right.
func parse(arguments []string) (*options, error) {
	o := &options{}
	seen := map[string]bool{}
	var wanted []string
	for at := 0; at < len(arguments); at++ {
		name := arguments[at]
		seen[name] = true
		switch name {
		case "--list":
			o.action = actionList
			continue
		case "--verify":
			o.action = actionVerify
			continue
		case "--quick":
			o.full = false
			continue
		case "--full":
			o.full = true
			continue
		case "--experiment", "--round", "--seed", "--case", "--system":
		default:
			return nil, fmt.Errorf("unknown argument '%s'; %s", name, usage)
		}
		at++
		if at == len(arguments) {
			return nil, fmt.Errorf("%s needs a value", name)
		}
		var mistake error
		switch value := arguments[at]; name {
		case "--experiment":
			o.experiment, mistake = experimentByName(value)
		case "--round":
			o.round, mistake = whole(name, value)
		case "--seed":
			o.seed, mistake = whole(name, value)
		case "--case":
			var number uint64
			number, mistake = whole(name, value)
			o.number = int(number)
			o.action = actionCell
		case "--system":
			wanted = append(wanted, value)
		}
		if mistake != nil {
			return nil, mistake
		}
	}
	var mistake error
	if o.systems, mistake = chosen(wanted); mistake != nil {
		return nil, mistake
	}
	return o, incomplete(o, seen)
}

func incomplete(o *options, seen map[string]bool) error {
	switch {
	case o.action == actionList || o.action == actionVerify:
		return nil
	case o.experiment == nil:
		return errors.New("nothing to do; " + usage)
	case seen["--quick"] == seen["--full"]:
		return errors.New("one of --quick and --full is needed, and not both")
	case !seen["--seed"]:
		return errors.New("--seed is missing; it takes a number")
	case !seen["--round"]:
		return errors.New("--round is missing; it takes a number")
	case o.action == actionCell && len(o.systems) != 1:
		return errors.New("--case takes exactly one --system")
	}
	return nil
}

func whole(name, text string) (uint64, error) {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s '%s' is no number; a whole number from 0 is", name, text)
	}
	return number, nil
}

func chosen(wanted []string) ([]*system, error) {
	taken := map[*system]bool{}
	for _, text := range wanted {
		found := false
		for _, system := range systems {
			if strings.Contains(system.name, text) {
				found = true
				taken[system] = true
			}
		}
		if !found {
			names := make([]string, len(systems))
			for at, system := range systems {
				names[at] = system.name
			}
			return nil, fmt.Errorf("--system '%s' is part of no system's name; they are %s",
				text, strings.Join(names, ", "))
		}
	}
	if len(wanted) == 0 {
		return systems, nil
	}
	var some []*system
	for _, system := range systems {
		if taken[system] {
			some = append(some, system)
		}
	}
	return some, nil
}
