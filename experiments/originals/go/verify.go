package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// earliestMs is how early a timer may fire: Go's documents say "at least" the duration.
const earliestMs = 0.0

// verify checks what must hold before a system is timed.
func verify(chosen []*system) bool {
	all := true
	for _, s := range chosen {
		for _, one := range []struct {
			name string
			test func(*system) (bool, string)
		}{
			{"a timeout fires", fires20},
			{"a cancelled timeout does not fire", cancelledIsSilent},
			{"no early fire beyond the documented bound", notEarly},
			{"the allocation counter counts", counterCounts},
		} {
			ok, detail := one.test(s)
			all = all && ok
			writeLine("check", check{one.name, s.name, ok, detail})
		}
	}
	return all
}

func fires20(s *system) (bool, string) {
	late := make(chan time.Duration, 1)
	s.lateness(20*time.Millisecond, late)
	select {
	case by := <-late:
		ms := float64(by) / float64(time.Millisecond)
		return ms >= earliestMs, fmt.Sprintf("one of 20 ms came %.3f ms late", ms)
	case <-time.After(10 * time.Second):
		return false, "one of 20 ms did not come within 10 s"
	}
}

func cancelledIsSilent(s *system) (bool, string) {
	fired := s.cancelled(20 * time.Millisecond)
	sentinel := make(chan time.Duration, 1)
	s.lateness(40*time.Millisecond, sentinel)
	<-sentinel
	if fired() {
		return false, "it fired before the sentinel that was armed 20 ms later"
	}
	return true, "it had not fired when the sentinel armed 20 ms later did"
}

func notEarly(s *system) (bool, string) {
	const events = 100
	late := s.latenessMs(2, events, 200*time.Millisecond, func(number int) time.Duration {
		return time.Duration(1+number%30) * time.Millisecond
	})
	earliest := slices.Min(late)
	return earliest >= earliestMs,
		fmt.Sprintf("earliest of %d of 1 to 30 ms: %+.3f ms; bound %g ms", events, earliest, earliestMs)
}

// sinkBlock keeps an allocation from being optimised away.
var sinkBlock *[96]byte

func counterCounts(*system) (bool, string) {
	const blocks = 1_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range blocks {
		sinkBlock = new([96]byte)
	}
	runtime.ReadMemStats(&after)
	mallocs, size := after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	// The runtime's own goroutines may add a few.
	ok := mallocs >= blocks && mallocs < blocks+100 && size >= 96*blocks && size < 96*blocks+20_000
	return ok, fmt.Sprintf("%d blocks of 96 B counted as %d of %d B", blocks, mallocs, size)
}
