package chat

import "strings"

// StopFilter passes a text on in pieces until a stop string is complete. What could still become a stop string is held.
// When several could end the text, the one that is complete first does; of those that end together, the longest.
type StopFilter struct {
	stops   []string
	held    string
	matched string
	stopped bool
}

// NewStopFilter makes a filter; empty stop strings are left out.
func NewStopFilter(stops []string) *StopFilter {
	f := &StopFilter{}
	for _, s := range stops {
		if s != "" {
			f.stops = append(f.stops, s)
		}
	}
	return f
}

// Push takes the next piece and gives the text that is certain, without the stop string. After stopped, nothing follows.
func (f *StopFilter) Push(text string) (out string, stopped bool) {
	if f.stopped {
		return "", true
	}
	text = f.held + text
	start, end := -1, len(text)+1
	for _, s := range f.stops {
		if k := strings.Index(text, s); k >= 0 && (k+len(s) < end || k+len(s) == end && k < start) {
			start, end = k, k+len(s)
		}
	}
	if start >= 0 {
		f.stopped, f.held, f.matched = true, "", text[start:end]
		return text[:start], true
	}
	keep := f.ambiguous(text)
	f.held = text[len(text)-keep:]
	return text[:len(text)-keep], false
}

// ambiguous is the length of the longest end of text that begins a stop string.
func (f *StopFilter) ambiguous(text string) int {
	longest := 0
	for _, s := range f.stops {
		for n := min(len(s)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// Flush gives what was held when the text ends by itself.
func (f *StopFilter) Flush() string {
	out := f.held
	f.held = ""
	return out
}

// Matched is the stop string that ended the text, "" if none did.
func (f *StopFilter) Matched() string { return f.matched }
