package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	oneSecond  = time.Second
	batch      = 25 * time.Millisecond
	warmUp     = 500 * time.Millisecond
	leastPairs = 1_000
)

// batchNs measures count pairs, and the same without timeouts where that is something: wall and CPU time of the difference.
func (s *system) batchNs(d time.Duration, count int) (wall, cpu float64, wrong int) {
	once := func(work func()) (float64, float64) {
		cpuBefore, start := processCPUNs(), time.Now()
		work()
		wall := float64(time.Since(start).Nanoseconds())
		return wall, processCPUNs() - cpuBefore
	}
	wall, cpu = once(func() { wrong = s.pairs(d, count) })
	if s.bare != nil {
		bareWall, bareCPU := once(func() { s.bare(count) })
		wall -= bareWall
		cpu -= bareCPU
	}
	return wall, cpu, wrong
}

// onOneP keeps hand-overs on one thread for systems that need them.
func (s *system) onOneP() {
	if s.bare != nil {
		runtime.GOMAXPROCS(1)
	}
}

// warmed runs pairs for the warm-up's time and gives how many fill a batch.
func (s *system) warmed(d time.Duration) (count, wrong int) {
	count = leastPairs
	for begin := time.Now(); ; {
		start := time.Now()
		wrong += s.pairs(d, count)
		took := time.Since(start)
		if time.Since(begin) >= warmUp {
			// The last of many batches: the fullest and the least cold.
			return max(leastPairs, int(float64(count)*float64(batch)/float64(max(took, 1)))), wrong
		}
		if took < batch {
			count *= 2
		}
	}
}

func measurePairs(o *options, s *system, c testCase, r rows) {
	s.onOneP()
	random := newRandom(o.seed, uint64(*c.Population))
	others := make([]any, *c.Population)
	for at := range others {
		others[at] = s.hold(120*time.Second + time.Duration(random.below(uint64(720*time.Second))))
	}
	runtime.GC()
	count, wrong := s.warmed(oneSecond)
	var wall, cpu series
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range pick(o, 5, 10) {
		wallNs, cpuNs, more := s.batchNs(oneSecond, count)
		wrong += more
		clockNs := clockReadingNs()
		wall.add(wallNs/float64(count), clockNs)
		cpu.add(cpuNs/float64(count), clockNs)
	}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(others)
	if fired := fires.Load(); wrong > 0 || fired > 0 {
		r.failed("%d pairs were not cancelled in time, %d timers fired that must not", wrong, fired)
		return
	}
	r.samples(s.pairsNote+fmt.Sprintf("%d pairs a batch after 0.5 s of warm-up, %d collections during %d batches",
		count, after.NumGC-before.NumGC, len(wall.values)), false, &wall, &cpu)
}

func measureScaling(o *options, s *system, c testCase, r rows) {
	if s.bare != nil {
		r.skipped("a blocked select needs a second goroutine to end it; with several Ps the hand-overs between threads" +
			" cost more than the timers and vary more: their difference says nothing")
		return
	}
	count := pick(o, 25_000, 75_000)
	var wall, cpu series
	wrong := 0
	for begin := time.Now(); time.Since(begin) < warmUp; {
		_, _, more := s.together(c.Workers, count)
		wrong += more
	}
	for range pick(o, 5, 10) {
		wallNs, cpuNs, more := s.together(c.Workers, count)
		wrong += more
		clockNs := clockReadingNs()
		wall.add(wallNs/float64(count), clockNs)
		cpu.add(cpuNs/float64(count*c.Workers), clockNs)
	}
	if fired := fires.Load(); wrong > 0 || fired > 0 {
		r.failed("%d pairs were not cancelled in time, %d timers fired that must not", wrong, fired)
		return
	}
	r.samples(s.pairsNote+fmt.Sprintf("%d pairs a goroutine, GOMAXPROCS %d, 0.5 s of warm-up", count, runtime.GOMAXPROCS(0)),
		false, &wall, &cpu)
}

// together lets workers make count pairs each, all started at once: wall time from the first start to the last end.
func (s *system) together(workers, count int) (wallNs, cpuNs float64, wrong int) {
	starts := make([]time.Time, workers)
	ends := make([]time.Time, workers)
	wrongs := make([]int, workers)
	begin := make(chan struct{})
	var ready, over sync.WaitGroup
	ready.Add(workers)
	over.Add(workers)
	for worker := range workers {
		go func() {
			defer over.Done()
			ready.Done()
			<-begin
			starts[worker] = time.Now()
			wrongs[worker] = s.pairs(oneSecond, count)
			ends[worker] = time.Now()
		}()
	}
	ready.Wait()
	cpuBefore := processCPUNs()
	close(begin)
	over.Wait()
	cpuNs = processCPUNs() - cpuBefore
	for _, some := range wrongs {
		wrong += some
	}
	first := slices.MinFunc(starts, time.Time.Compare)
	last := slices.MaxFunc(ends, time.Time.Compare)
	return float64(last.Sub(first).Nanoseconds()), cpuNs, wrong
}
