package engine

import (
	"slices"
	"time"

	"github.com/clademl/clade/sdk/mlx"
)

// Choices of one prompt are requests like any others. The first of them computes the prompt, the others wait for it and take it from
// what is kept of earlier beginnings.

// enter gives a row to the scheduler, or to the choice that computes its prompt.
func (e *Engine) enter(r *row, now time.Time) error {
	if lead := e.lead(r); lead != nil {
		lead.followers = append(lead.followers, r)
		return nil
	}
	if err := e.sched.Submit(&r.Row, now); err != nil {
		return err
	}
	e.rows[&r.Row] = r
	e.publish()
	return nil
}

// lead is the choice of the same prompt that has not computed it yet.
func (e *Engine) lead(r *row) *row {
	if !e.memory.on || !r.sharesPrompt() {
		return nil
	}
	for _, other := range e.rows {
		if other.sharesPrompt() && !other.over && other.counted < other.prompt && other.namespace() == r.namespace() && slices.Equal(other.ids, r.ids) {
			return other
		}
	}
	return nil
}

func (r *row) sharesPrompt() bool { return r.gen != nil && r.gen.choices && r.gen.remember }

// letIn lets the choices that waited for a row's prompt in. Where the row has computed it, they find it.
func (e *Engine) letIn(lead *row) {
	waiting := slices.DeleteFunc(lead.followers, func(r *row) bool { return r.over })
	lead.followers = nil
	if len(waiting) == 0 {
		return
	}
	if !lead.over && lead.cache != nil {
		_ = e.do(func(s *mlx.Scope) error { e.remember(s, lead, lead.known()); return nil }) // one that fails is counted
	}
	for _, r := range waiting {
		err := errClosing()
		if !e.closes() {
			err = e.refusal(r, e.enter(r, r.submitted))
		}
		if err != nil {
			e.endWith(r, err)
		}
	}
}
