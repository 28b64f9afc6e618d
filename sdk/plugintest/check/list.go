package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clademl/clade/sdk/contract"
)

// check is one fact that a plugin holds to.
type check struct {
	name, fact string
	run        func(s *subject, ctx context.Context) error
}

// checks in the order they run.
func checks() []check {
	return slices.Concat(processChecks(), describeChecks(), planChecks(), openChecks(), answerChecks(), optionChecks(), rowChecks(), adapterChecks(), otherChecks(),
		endChecks())
}

// Names lists the checks with their facts, in the order they run.
func Names() (names, facts []string) {
	for _, c := range checks() {
		names, facts = append(names, c.name), append(facts, c.fact)
	}
	return names, facts
}

// Run checks a plugin. An error says that the suite itself could not work; what is wrong with the plugin is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	list := checks()
	for _, name := range o.Only {
		if !slices.ContainsFunc(list, func(c check) bool { return c.name == name }) {
			names, _ := Names()
			return nil, contract.Errorf(contract.InvalidArgument, name, "no such check; there are %s", strings.Join(names, ", "))
		}
	}
	s := newSubject(o)
	defer s.close(ctx)
	r := &Report{Plugin: "plugin", Path: o.Path, Model: o.Model}
	unknown := s.learn(ctx)
	if unknown == nil {
		r.Plugin, r.Version = s.manifest.Name, s.manifest.Version
	}
	for i, c := range list {
		// The first checks are about how a process starts; the others stand on its description.
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return r, contract.Errorf(contract.Cancelled, o.Path, "check: %w", err)
		}
		began := time.Now()
		var err error
		if unknown != nil && i >= len(processChecks()) {
			err = notRun("the plugin cannot be asked who it is: %v", unknown)
		} else {
			err = c.run(s, ctx)
		}
		status, reason := outcome(err)
		result := Result{Name: c.name, Fact: c.fact, Status: status, Reason: reason, Seconds: time.Since(began).Seconds()}
		r.Results = append(r.Results, result)
		if o.Each != nil {
			o.Each(result)
		}
	}
	return r, nil
}

func kindNames(kinds []contract.Kind) string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.String())
	}
	return strings.Join(out, " or ")
}

// containsWord says whether one of the comma-separated subjects is path, a part of it, or a place in its value (path#/a/b).
func containsWord(subject, path string) bool {
	for part := range strings.SplitSeq(subject, ",") {
		part = strings.TrimSpace(part)
		if part == path || part != "" && (strings.HasSuffix(path, "."+part) || strings.HasSuffix(part, "."+path) || strings.HasPrefix(path, part+".") || strings.HasPrefix(part, path+"#")) {
			return true
		}
	}
	return false
}

// needs is the reason that an RPC is not checked.
func (s *subject) needs(rpc string) error {
	if !s.rpcs[rpc] {
		return undeclared("%s is not among its RPCs", rpc)
	}
	return nil
}

// needsOptions is the reason that options are not checked.
func (s *subject) needsOptions(paths ...string) error {
	for _, p := range paths {
		if !s.declared[p] {
			return undeclared("the option %s", p)
		}
	}
	return nil
}

// each runs fn over cases and gathers what is wrong, so that one run names all of it.
func each[T any](cases []T, fn func(T) error) error {
	var wrong []string
	for _, c := range cases {
		if err := fn(c); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	const enough = 5
	more := ""
	if len(wrong) > enough {
		more = fmt.Sprintf("; and %d more", len(wrong)-enough)
	}
	return fmt.Errorf("%s%s", strings.Join(wrong[:min(len(wrong), enough)], "; "), more)
}
