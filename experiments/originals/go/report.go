package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"strings"
)

// series holds samples of one metric, each with what one clock reading cost beside it.
type series struct{ values, clockNs []float64 }

func (s *series) add(value, clockNs float64) {
	s.values = append(s.values, value)
	s.clockNs = append(s.clockNs, clockNs)
}

type row struct {
	Service      string    `json:"service"`
	Case         testCase  `json:"case"`
	Metric       string    `json:"metric"`
	Unit         string    `json:"unit"`
	Samples      []float64 `json:"samples,omitempty"`
	ClockNs      []float64 `json:"clock_ns,omitempty"`
	Note         string    `json:"note,omitempty"`
	SingleEvents *bool     `json:"single_events,omitempty"`
	Skipped      string    `json:"skipped,omitempty"`
	Error        string    `json:"error,omitempty"`
}

// rows writes the rows of one system x case.
type rows struct {
	system   *system
	testCase testCase
	metrics  []metric
}

// samples writes one row a metric; series and metrics are in the same order.
func (r rows) samples(note string, singleEvents bool, all ...*series) {
	for at, s := range all {
		out := r.row(r.metrics[at])
		out.Samples = rounded(s.values)
		out.ClockNs = rounded(s.clockNs)
		out.Note = r.system.note + "; " + note
		out.SingleEvents = &singleEvents
		writeLine("row", out)
	}
}

func (r rows) skipped(reason string) {
	for _, m := range r.metrics {
		out := r.row(m)
		out.Skipped = reason
		writeLine("row", out)
	}
}

// failed says why what was measured must not be used.
func (r rows) failed(format string, arguments ...any) {
	for _, m := range r.metrics {
		out := r.row(m)
		out.Error = fmt.Sprintf(format, arguments...)
		writeLine("row", out)
	}
}

func (r rows) row(m metric) row {
	return row{Service: r.system.name, Case: r.testCase, Metric: m.name, Unit: m.unit}
}

type check struct {
	Name    string `json:"name"`
	Service string `json:"service"`
	Ok      bool   `json:"ok"`
	Detail  string `json:"detail"`
}

func writeVersions() {
	writeLine("versions", map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")})
}

func writeLine(key string, value any) {
	line, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		panic(err) // only a figure that is no number, which is a defect here
	}
	write(string(line))
}

// unwritable is the exit code when standard output cannot be written; a child's tells its parent that the line is said.
var unwritable = 2

const unwritableByChild = 4

// write writes a line to standard output; nothing is worth measuring once that fails.
func write(line string) {
	if _, err := os.Stdout.WriteString(line + "\n"); err != nil {
		var where *fs.PathError
		if errors.As(err, &where) {
			err = where.Err
		}
		fmt.Fprintln(os.Stderr, "timerbench-originals: standard output cannot be written:", err)
		os.Exit(unwritable)
	}
}

// rounded keeps six decimals: a nanosecond where the unit is a millisecond.
func rounded(values []float64) []float64 {
	result := make([]float64, len(values))
	for at, value := range values {
		result[at] = math.Round(value*1e6) / 1e6
	}
	return result
}
