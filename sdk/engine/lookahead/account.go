package lookahead

// What drafting may lose, as shares of the time of plain steps and in plain steps.
const (
	// ownShare is what a row's own plain steps earn for its drafts, allShare what they earn for the fund that all rows borrow from.
	ownShare, allShare = 0.02, 0.01
	// purseMost is how many plain steps a row's purse holds at most; what is gained beyond goes into the fund. fundMost is how many for
	// each row decoding that one holds.
	purseMost, fundMost = 4, 4
	// grant is what the fund begins with, for each row decoding: the one trial that nothing has been earned for.
	grant = 2
	// overdraft is how far a row may be in debt to the fund, trust how far one may that is beside others and is drafted for such that it
	// should gain: chance goes further against one of several than it may against one alone.
	overdraft, trust = 1, 2
)

// Row is what is known of one row: how drafts did in its text, and the time that they may lose there. The zero value is that of a row
// that has just begun.
type Row struct {
	odds  odds
	purse float64 // seconds; negative: what drafts cost beyond what the row had earned, which the fund lent
}

// Purse is what the row's drafts may lose, in seconds.
func (r *Row) Purse() float64 { return r.purse }

// fund is what the rows of an engine lend one another: seconds, a row's each.
type fund struct {
	seconds float64
	granted bool
}

// earn adds a step's shares.
func (f *fund) earn(rows []*Row, step, seconds float64) {
	if !f.granted {
		f.granted, f.seconds = true, grant*step*float64(len(rows))
	}
	for _, r := range rows {
		f.settle(r, step, ownShare*seconds)
		f.seconds += allShare * seconds
	}
	f.seconds = min(f.seconds, fundMost*step*float64(len(rows)))
}

// settle adds to a row's purse what it gained, or takes what it lost.
func (f *fund) settle(r *Row, step, gained float64) {
	debt := min(r.purse, 0)
	r.purse += gained
	f.seconds += min(r.purse, 0) - debt
	if over := r.purse - purseMost*step; over > 0 {
		r.purse -= over
		f.seconds += over
	}
}

// affords reports whether each of rows may lose so many seconds in a round: from its purse, or from what others and it itself have
// earned. limit is how many steps deep in debt a row may be.
func (f *fund) affords(rows []Prospect, loss, step float64, limit func(row int) float64) bool {
	lent := 0.0
	for i, p := range rows {
		left := p.Row.purse - loss
		switch {
		case left >= 0 || loss <= 0:
		case left < -limit(i)*step:
			return false
		default:
			lent += min(loss, -left)
		}
	}
	return lent <= 0 || lent <= f.seconds
}
