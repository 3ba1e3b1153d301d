package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const leastBatch = 4 * time.Millisecond

func measureReady(o *options, s *system, c testCase, r rows) {
	if s.ready == nil {
		r.skipped("a callback has no ready path: the timer is armed whether the operation is done or not; see arm_cancel")
		return
	}
	once := func(work func(time.Duration, int) int, count int) (float64, int) {
		start := time.Now()
		done := work(oneSecond, count)
		return float64(time.Since(start).Nanoseconds()), done
	}
	count := leastPairs
	for begin := time.Now(); time.Since(begin) < warmUp; {
		if ns, _ := once(s.ready, count); ns < float64(leastBatch) {
			count *= 2
		}
		once(s.alone, count)
	}
	var above, whole series
	notDone := 0
	for range pick(o, 5, 10) {
		before, doneBefore := once(s.alone, count)
		wholeNs, doneWhole := once(s.ready, count)
		after, doneAfter := once(s.alone, count)
		notDone += 3*count - doneBefore - doneWhole - doneAfter
		clockNs := clockReadingNs()
		above.add((wholeNs-(before+after)/2)/float64(count), clockNs)
		whole.add(wholeNs/float64(count), clockNs)
	}
	if notDone != 0 {
		r.failed("%d operations that are done at once were not", notDone)
		return
	}
	what := "the context is made, its timer armed and cancelled although the operation is done"
	if s == newTimer {
		what = "the select finds its operation done: the timer is made and never in a heap"
	}
	r.samples(fmt.Sprintf("%s; %d operations a batch after 0.5 s of warm-up", what, count), false, &above, &whole)
}

func measureAllocs(o *options, s *system, c testCase, r rows) {
	s.onOneP()
	const count = 20_000
	wrong := s.pairs(oneSecond, count)
	counted := func(work func()) (float64, float64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		work()
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs - before.Mallocs), float64(after.TotalAlloc - before.TotalAlloc)
	}
	var allocations, size series
	for range pick(o, 5, 10) {
		runtime.GC()
		mallocs, total := counted(func() { wrong += s.pairs(oneSecond, count) })
		if s.bare != nil {
			bareMallocs, bareTotal := counted(func() { s.bare(count) })
			mallocs -= bareMallocs
			total -= bareTotal
		}
		clockNs := clockReadingNs()
		allocations.add(mallocs/count, clockNs)
		size.add(total/count, clockNs)
	}
	if wrong > 0 {
		r.failed("%d pairs were not cancelled in time", wrong)
		return
	}
	r.samples(s.pairsNote+fmt.Sprintf("runtime.MemStats over %d pairs", count), false, &allocations, &size)
}

func measureAccuracy(o *options, s *system, c testCase, r rows) {
	d := time.Duration(c.DurationMs) * time.Millisecond
	events := pick(o, 200, 1_000)
	window := time.Duration(pick(o, 100, 400)) * time.Millisecond
	var late series
	clockNs := clockReadingNs()
	for _, ms := range s.latenessMs(o.seed, events, window, func(int) time.Duration { return d }) {
		late.add(ms, clockNs)
	}
	r.samples(fmt.Sprintf("armed over %v", window), true, &late)
}

// latenessMs arms events timeouts at random times of a window, of durations by number: how late each was seen.
func (s *system) latenessMs(seed uint64, events int, window time.Duration, duration func(int) time.Duration) []float64 {
	random := newRandom(seed, 0xacc)
	offsets := make([]time.Duration, events)
	for at := range offsets {
		offsets[at] = time.Duration(random.below(uint64(window)))
	}
	slices.Sort(offsets)
	late := make(chan time.Duration, events)
	begin := time.Now()
	for number, offset := range offsets {
		sleepUntil(begin.Add(offset))
		s.lateness(duration(number), late)
	}
	result := make([]float64, events)
	for at := range result {
		result[at] = float64(<-late) / float64(time.Millisecond)
	}
	return result
}

// sleepUntil sleeps in the kernel and not in Go's timers: their wake-ups come in steps of the poller's milliseconds, and
// timeouts armed at them would all be at the same place of a step.
func sleepUntil(due time.Time) {
	for {
		left := time.Until(due)
		if left <= 0 {
			return
		}
		rest := syscall.NsecToTimespec(int64(left))
		syscall.Nanosleep(&rest, nil) // a signal ends it early, hence the loop
	}
}

func measureMemory(o *options, s *system, c testCase, r rows) {
	s.onOneP()
	d := time.Duration(c.DurationMs) * time.Millisecond
	wrong := s.pairs(d, leastPairs)
	state := func() (heap, rss float64) {
		runtime.GC()
		runtime.GC() // the second frees what the first found finalized or swept late
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return float64(stats.HeapAlloc), residentBytes()
	}
	heapBefore, rssBefore := state()
	wrong += s.pairs(d, c.Timers)
	heapAfter, rssAfter := state()
	if wrong > 0 {
		r.failed("%d pairs were not cancelled in time", wrong)
		return
	}
	clockNs := clockReadingNs()
	var held, rss series
	held.add((heapAfter-heapBefore)/float64(c.Timers), clockNs)
	rss.add((rssAfter-rssBefore)/float64(c.Timers), clockNs)
	r.samples(s.pairsNote+"live heap after two collections; resident memory is what the runtime has not given back", false, &held, &rss)
}

func residentBytes() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		panic("/proc/self/status has no VmRSS")
	}
	kib, err := strconv.ParseFloat(string(fields[0]), 64)
	if err != nil {
		panic(err)
	}
	return kib * 1024
}
