package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// visit measures every chosen system in every case of the experiment, each in a child process, in an order that seed and
// round decide.
func visit(o *options) {
	writeVersions()
	type cell struct {
		system *system
		number int
		c      testCase
	}
	var cells []cell
	for _, system := range o.systems {
		for number, c := range o.experiment.cases(o) {
			cells = append(cells, cell{system, number, c})
		}
	}
	shuffle(newRandom(o.seed, o.round), cells)
	program, err := os.Executable()
	if err != nil {
		panic(err) // Linux tells a program its file
	}
	seed := strconv.FormatUint(o.seed^(o.round<<32|o.round>>32), 10)
	for _, one := range cells {
		child := exec.Command(program, "--experiment", o.experiment.name, "--round", "0", "--seed", seed,
			pick(o, "--quick", "--full"), "--system", one.system.name, "--case", strconv.Itoa(one.number))
		child.Stdout = os.Stdout
		child.Stderr = os.Stderr
		if err := child.Run(); err != nil {
			var ended *exec.ExitError
			if errors.As(err, &ended) && ended.ExitCode() == unwritableByChild {
				os.Exit(unwritable)
			}
			rows{one.system, one.c, o.experiment.metrics}.failed("the measuring process ended: %v", err)
		}
	}
}

// measure measures one case of one system in this process.
func measure(o *options) {
	s := o.systems[0]
	cases := o.experiment.cases(o)
	if o.number >= len(cases) {
		fmt.Fprintf(os.Stderr, "timerbench-originals: --case %d of %d\n", o.number, len(cases))
		os.Exit(2)
	}
	c := cases[o.number]
	o.experiment.measure(o, s, c, rows{s, c, o.experiment.metrics})
}
