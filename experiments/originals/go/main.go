// Go's own timeouts in timerbench's cases: time.AfterFunc + Stop, context.WithTimeout + cancel, select with
// time.NewTimer.
//
// How it measures. A pair is armed and cancelled before it fires, in a loop of one goroutine. Wall time is the
// loop's; CPU time is the process's (getrusage), collector and scheduler included. Every system x case runs in a process
// of its own, so that no case meets the heap or the timers of another.
//
// Go's timers since 1.23, which the go directive asks for. Each P keeps a 4-ary heap of timers; Stop marks a timer in it
// and the P drops marked ones when it next adds or runs timers, so a stopped timer is gone at once for its user and soon
// for the heap. A channel timer (NewTimer) is in a heap only while a goroutine is blocked on its channel, and an
// unreferenced one is collected whether it was stopped or not: before 1.23 it was in the heap from its creation, so
// figures of older versions do not compare.
//
// What does not compare, and what was done about it:
//
//   - A select that finds its operation done never arms a NewTimer: that is the ready path. For arm and cancel the select
//     must block, and another goroutine must end it. The figure is that cycle minus the same cycle with a channel that never
//     fires in the timer's place, both with one P, so that hand-overs do not wander between threads. With more Ps they
//     do, and the difference of two such cycles says nothing: no scaling.
//   - The timers that others hold are of the measured kind; for NewTimer they are AfterFunc's, in the same heap, since each
//     blocked one would cost a goroutine.
//   - The collector: batches take 25 ms and not 2, so that collections fall into them in proportion; the note says how
//     many did. Warm-up is 0.5 s of pairs.
//   - AfterFunc's callback starts in a goroutine of its own; the other two wake one that waits. Lateness is read there.
//   - time.Now reads two clocks. Batches and clock_ns use time.Since, which reads the monotonic one alone.
package main

import (
	"fmt"
	"os"
)

func main() {
	options, mistake := parse(os.Args[1:])
	if mistake != nil {
		fmt.Fprintln(os.Stderr, "timerbench-originals:", mistake)
		os.Exit(2)
	}
	switch options.action {
	case actionList:
		for _, system := range systems {
			write(system.name)
		}
	case actionVerify:
		writeVersions()
		if !verify(options.systems) {
			os.Exit(1)
		}
	case actionVisit:
		visit(options)
	case actionCell:
		unwritable = unwritableByChild
		measure(options)
	}
}
