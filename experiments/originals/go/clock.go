package main

import (
	"syscall"
	"time"
)

const clockReadings = 1_000

var processStart = time.Now()

// sinkDuration takes what a loop computes, so that the loop is not removed. Written by the measuring goroutine alone.
var sinkDuration time.Duration

// clockReadingNs is the mean cost of one reading of the monotonic clock.
func clockReadingNs() float64 {
	start := time.Now()
	for range clockReadings {
		sinkDuration = time.Since(processStart)
	}
	return float64(time.Since(start).Nanoseconds()) / clockReadings
}

// processCPUNs is the CPU time that all threads of the process have used so far.
func processCPUNs() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return float64(usage.Utime.Nano() + usage.Stime.Nano())
}
