package check

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Status of one check.
type Status string

// The outcomes.
const (
	Passed Status = "pass"
	Failed Status = "fail"
	// Undeclared: the plugin does not declare what the check is about.
	Undeclared Status = "not declared"
	// NotRun: the check needs what the caller did not give, or what this system does not have.
	NotRun Status = "not run"
)

// Result of one check. Fact is what holds when it passes; Reason is what is wrong, or why it was not run.
type Result struct {
	Name    string  `json:"name"`
	Fact    string  `json:"fact"`
	Status  Status  `json:"status"`
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
}

// Report is what the suite found.
type Report struct {
	Plugin  string   `json:"plugin"`
	Version string   `json:"version"`
	Path    string   `json:"path"`
	Model   string   `json:"model,omitempty"`
	Results []Result `json:"results"`
}

// Count is how many results have a status.
func (r *Report) Count(s Status) int {
	n := 0
	for _, x := range r.Results {
		if x.Status == s {
			n++
		}
	}
	return n
}

// OK says that nothing failed.
func (r *Report) OK() bool { return r.Count(Failed) == 0 }

// Write prints the result in a line, and its reason in a second one.
func (r Result) Write(w io.Writer) error {
	text := fmt.Sprintf("%-12s  %-16s  %s\n", r.Status, r.Name, r.Fact)
	if r.Reason != "" {
		text += fmt.Sprintf("%-12s  %-16s  -> %s\n", "", "", r.Reason)
	}
	_, err := io.WriteString(w, text)
	return err
}

// Summary is one line with the counts.
func (r *Report) Summary() string {
	return fmt.Sprintf("%s %s: %d passed, %d failed, %d not declared, %d not run", r.Plugin, r.Version, r.Count(Passed), r.Count(Failed),
		r.Count(Undeclared), r.Count(NotRun))
}

// outcome turns what a check returned into a status.
func outcome(err error) (Status, string) {
	switch e := err.(type) {
	case nil:
		return Passed, ""
	case undeclaredError:
		return Undeclared, string(e)
	case notRunError:
		return NotRun, string(e)
	}
	return Failed, strings.Join(strings.Fields(err.Error()), " ")
}

type (
	undeclaredError string
	notRunError     string
)

func (e undeclaredError) Error() string { return string(e) }
func (e notRunError) Error() string     { return string(e) }

func undeclared(format string, args ...any) error {
	return undeclaredError(fmt.Sprintf(format, args...))
}

func notRun(format string, args ...any) error { return notRunError(fmt.Sprintf(format, args...)) }

// limits are the suite's patience.
type limits struct {
	start   time.Duration // until the handshake line
	quick   time.Duration // an answer that needs no work
	load    time.Duration // planning and opening
	silence time.Duration // between two messages of a stream
	stall   time.Duration // between two that are more than a heartbeat
	beat    time.Duration // the longest pause that the heartbeat may leave
	cancel  time.Duration // from a cancel to the end of its stream
	exit    time.Duration // of the process, once it was told to
}

var usual = limits{
	start: 10 * time.Second, quick: 10 * time.Second, load: 10 * time.Minute, silence: 10 * time.Second, stall: 2 * time.Minute, beat: 4 * time.Second,
	cancel: 2 * time.Second, exit: 5 * time.Second,
}
