package main

import (
	"context"
	"sync/atomic"
	"time"
)

// system is one of Go's ways to put a limit on a wait.
type system struct {
	name string

	// note is said in every row, pairsNote in those of pairs.
	note, pairsNote string

	// pairs arms and cancels count timeouts one after the other and gives how many ended otherwise.
	pairs func(d time.Duration, count int) (wrong int)

	// bare does what pairs does apart from the timeouts; nil if that is nothing.
	bare func(count int)

	// hold arms a timeout and gives what must be kept for it to stay armed.
	hold func(d time.Duration) any

	// lateness arms a timeout, and gives late once it is seen, how much later than due that was.
	lateness func(d time.Duration, late chan<- time.Duration)

	// ready puts a timeout around an operation that is done when first asked, alone does without the timeout. Both give how
	// many were done. nil if this way of waiting never asks first.
	ready, alone func(d time.Duration, count int) (done int)

	// cancelled arms a timeout, cancels it, and gives a function that tells whether it fired all the same.
	cancelled func(d time.Duration) (fired func() bool)
}

var systems = []*system{afterFunc, withTimeout, newTimer}

// fires counts callbacks of timers that must not fire. Added to by their goroutines, read once they would be over.
var fires atomic.Int64

func countFire() { fires.Add(1) }

var afterFunc = &system{
	name:      "original/go/after_func",
	note:      "time.AfterFunc + Stop",
	pairsNote: "Stop marks the timer in its P's heap, the next that is added drops it; ",
	pairs: func(d time.Duration, count int) (wrong int) {
		for range count {
			if !time.AfterFunc(d, countFire).Stop() {
				wrong++
			}
		}
		return wrong
	},
	hold: func(d time.Duration) any { return time.AfterFunc(d, countFire) },
	lateness: func(d time.Duration, late chan<- time.Duration) {
		start := time.Now()
		time.AfterFunc(d, func() { late <- time.Since(start) - d })
	},
	cancelled: func(d time.Duration) func() bool {
		before := fires.Load()
		time.AfterFunc(d, countFire).Stop()
		return func() bool { return fires.Load() != before }
	},
}

// A waiter blocked on a context asks it for its channel, which adds an allocation that pairs do not have.
var withTimeout = &system{
	name:      "original/go/context",
	note:      "context.WithTimeout + cancel",
	pairsNote: "nobody asks for Done's channel; ",
	pairs: func(d time.Duration, count int) (wrong int) {
		for range count {
			c, cancel := context.WithTimeout(context.Background(), d)
			if c.Err() != nil {
				wrong++
			}
			cancel()
		}
		return wrong
	},
	hold: func(d time.Duration) any {
		c, cancel := context.WithTimeout(context.Background(), d)
		return [2]any{c, cancel}
	},
	lateness: func(d time.Duration, late chan<- time.Duration) {
		go func() {
			start := time.Now()
			c, cancel := context.WithTimeout(context.Background(), d)
			<-c.Done()
			late <- time.Since(start) - d
			cancel()
		}()
	},
	ready: func(d time.Duration, count int) (done int) {
		for range count {
			c, cancel := context.WithTimeout(context.Background(), d)
			done += operation(c)
			cancel()
		}
		return done
	},
	alone: func(_ time.Duration, count int) (done int) {
		for range count {
			done += operation(context.Background())
		}
		return done
	},
	cancelled: func(d time.Duration) func() bool {
		c, cancel := context.WithTimeout(context.Background(), d)
		cancel()
		return func() bool { return c.Err() != context.Canceled }
	},
}

// operation is done at once unless its context is over.
//
//go:noinline
func operation(c context.Context) int {
	if c.Err() != nil {
		return 0
	}
	return 1
}

var newTimer = &system{
	name: "original/go/new_timer",
	note: "select with time.NewTimer + Stop",
	pairsNote: "blocked until another goroutine ends it; minus the same with a channel that never fires; one P; others are" +
		" AfterFunc timers; ",
	pairs: func(d time.Duration, count int) (wrong int) {
		handOver(count, func(done <-chan struct{}) {
			timer := time.NewTimer(d)
			select {
			case <-done:
			case <-timer.C:
				wrong++
				<-done
			}
			timer.Stop()
		})
		return wrong
	},
	bare: func(count int) {
		never := make(chan time.Time)
		handOver(count, func(done <-chan struct{}) {
			select {
			case <-done:
			case <-never:
			}
		})
	},
	hold: afterFunc.hold,
	lateness: func(d time.Duration, late chan<- time.Duration) {
		go func() {
			start := time.Now()
			timer := time.NewTimer(d)
			select {
			case <-neverDone:
			case <-timer.C:
				late <- time.Since(start) - d
			}
		}()
	},
	ready: func(d time.Duration, count int) (done int) {
		results := make(chan int, 1)
		for range count {
			results <- 1
			timer := time.NewTimer(d)
			select {
			case result := <-results:
				done += result
			case <-timer.C:
			}
			timer.Stop()
		}
		return done
	},
	alone: func(_ time.Duration, count int) (done int) {
		results := make(chan int, 1)
		for range count {
			results <- 1
			done += <-results
		}
		return done
	},
	cancelled: func(d time.Duration) func() bool {
		timer := time.NewTimer(d)
		timer.Stop()
		return func() bool {
			select {
			case <-timer.C:
				return true
			default:
				return false
			}
		}
	},
}

// neverDone is the result of operations that do not finish.
var neverDone = make(chan struct{})

// handOver calls wait count times. Each call finds done empty; a partner, which runs when wait blocks, sends to it.
func handOver(count int, wait func(done <-chan struct{})) {
	next := make(chan struct{}, 1)
	done := make(chan struct{}, 1)
	go func() {
		for range next {
			done <- struct{}{}
		}
	}()
	for range count {
		next <- struct{}{}
		wait(done)
	}
	close(next)
}
